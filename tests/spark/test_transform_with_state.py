"""The operator agrees with a batch computation of the same input, end to end in one session."""

from __future__ import annotations

import pytest

from spark_state.spark.queries.adaptive_plans import ADAPTIVE_KEY
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark


def test_totals_over_epochs_with_and_without_rows_and_restarts_equal_the_batch_computation(
    stream: Stream,
) -> None:
    for counts in ((500, 0, 500), (200,), (0,), (200,)):
        for count in counts:
            stream.feed(random_rows(len(stream.fed), count, keys=100))
        stream.run()
    assert stream.totals() == totals_of(stream.fed)


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
