"""The operator agrees with a batch computation of the same input, end to end in one session."""

from __future__ import annotations

import pytest

from spark_state.spark.queries.adaptive_plans import ADAPTIVE_KEY
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark


def test_totals_over_many_epochs_equal_the_batch_computation(stream: Stream) -> None:
    for epoch in range(5):
        stream.feed(random_rows(epoch, count=500, keys=100))
    stream.run()
    assert stream.totals() == totals_of(stream.fed)


def test_a_restarted_query_goes_on_from_its_state(stream: Stream) -> None:
    for epoch in range(4):
        stream.feed(random_rows(epoch, count=200, keys=50))
        stream.run()
    assert stream.totals() == totals_of(stream.fed)


def test_an_epoch_without_rows_keeps_the_state(stream: Stream) -> None:
    stream.feed([("a", 1), ("b", 2)])
    stream.feed([])
    stream.feed([("a", 3)])
    stream.run()
    assert stream.totals() == {"a": (2, 4), "b": (1, 2)}


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
