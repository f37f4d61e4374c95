"""Spark plans the batches of an operator as few jobs."""

from __future__ import annotations

import pytest

from spark_state.spark.queries.adaptive_plans import ADAPTIVE_KEY
from tests.support.applications.streams import Stream
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("chosen", [None, "true"])
def test_a_batch_is_one_job_unless_the_user_asks_for_adaptive_plans(
    stream: Stream, chosen: str | None
) -> None:
    stream.feed([("a", 1)])
    writer = stream.operator().writeStream.format("noop").outputMode("update")
    with configured(stream.spark, {} if chosen is None else {ADAPTIVE_KEY: chosen}):
        query = writer.trigger(availableNow=True).start()
        assert stream.spark.conf.getAll.get(ADAPTIVE_KEY) == chosen
    query.awaitTermination()
    assert ("AdaptiveSparkPlan" in query._jsq.explainInternal(False)) == (chosen == "true")
