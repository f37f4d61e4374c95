"""State and output equal a batch computation exactly once, whatever stops the query."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from checkpoint_store.state_reader import open_store
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.operators.executors import state_hosts
from tests.support.processors.processors import POISON, FailingAt, KeepsValues, KillingOnce

pytestmark = [pytest.mark.spark, pytest.mark.fault]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def hosts_of(session: SparkSession) -> list[psutil.Process]:
    jvm: Any = session._jvm
    return state_hosts(jvm.java.lang.ProcessHandle.current().pid())


def feed_epochs(stream: Stream, count: int, first: int = 0) -> None:
    for epoch in range(first, first + count):
        stream.feed(random_rows(epoch, count=300, keys=60))


def test_hosts_killed_between_epochs_lose_nothing(stream: Stream) -> None:
    feed_epochs(stream, 3)
    stream.run()
    hosts = hosts_of(stream.spark)
    assert hosts
    for host in hosts:
        host.send_signal(signal.SIGKILL)
    feed_epochs(stream, 2, first=3)
    stream.run()
    assert stream.totals() == totals_of(stream.fed)


def test_lists_and_maps_of_killed_hosts_and_failed_epochs_are_whole(stream: Stream) -> None:
    """A failed epoch has already changed lists and maps in place."""
    feed_epochs(stream, 3)
    stream.run(stream.operator(KeepsValues()))
    for host in hosts_of(stream.spark):
        host.send_signal(signal.SIGKILL)
    stream.feed([*random_rows(3, count=300, keys=60), ("key1", -1)])
    with pytest.raises(StreamingQueryException, match="a negative value: -1 of"):
        stream.run(stream.operator(KeepsValues()))
    (stream.input / "00003.parquet").unlink()
    del stream.fed[-301:]
    stream.feed(random_rows(3, count=300, keys=60))
    (stream.input / "00004.parquet").rename(stream.input / "00003.parquet")
    feed_epochs(stream, 1, first=5)
    stream.run(stream.operator(KeepsValues()))
    kept = open_store(str(stream.store()), state="items").read().to_pylist()
    values_of = {
        row["key"]: Counter(element["value"] for element in row["list_value"]) for row in kept
    }
    expected: dict[str | None, Counter[int]] = defaultdict(Counter)
    for key, value in stream.fed:
        expected[key][value] += 1
    assert values_of == expected


def test_a_host_killed_in_the_middle_of_an_epoch_fails_the_query_and_a_restart_goes_on(
    stream: Stream, tmp_path: Path
) -> None:
    feed_epochs(stream, 2)
    stream.feed([*random_rows(7, count=300, keys=60), ("key1", POISON)])
    feed_epochs(stream, 2, first=8)
    output = stream.operator(KillingOnce("host", tmp_path / "killed"), name="totals")
    with pytest.raises(StreamingQueryException, match=r"subtask \d died in epoch \d"):
        stream.run(output)
    stream.run(stream.operator(name="totals"))
    assert stream.totals() == totals_of(stream.fed)


def test_an_error_of_the_processor_reaches_the_user_with_its_traceback(stream: Stream) -> None:
    stream.feed([("a", 1)])
    stream.feed([("a", -5)])
    with pytest.raises(StreamingQueryException) as caught:
        stream.run(stream.operator(FailingAt(), name="totals"))
    message = str(caught.value)
    assert "ValueError: a negative value: -5 of ('a',)" in message
    assert "processors.py" in message
    assert "in handleInputRows" in message


def test_after_an_error_of_the_processor_the_epoch_runs_again_from_the_same_state(
    stream: Stream,
) -> None:
    feed_epochs(stream, 2)
    stream.feed([*random_rows(7, count=300, keys=60), ("key1", -5)])
    with pytest.raises(StreamingQueryException):
        stream.run(stream.operator(FailingAt(), name="totals"))
    stream.run(stream.operator(name="totals"))
    assert stream.totals() == totals_of(stream.fed)


def failing_once(stream: Stream, at_epoch: int) -> Callable[[DataFrame, int], None]:
    failed: list[int] = []

    def sink(batch: DataFrame, epoch: int) -> None:
        stream.keep(batch, epoch)
        if epoch == at_epoch and not failed:
            failed.append(epoch)
            raise OSError("the sink is full")

    return sink


def test_a_sink_that_fails_after_the_state_was_written_gets_the_same_rows_again(
    stream: Stream,
) -> None:
    feed_epochs(stream, 4)
    sink = failing_once(stream, at_epoch=2)
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        stream.run(sink=sink)
    first = [row for row in stream.kept() if row[0] == 2]
    stream.run(sink=sink)
    assert sorted(row for row in stream.kept() if row[0] == 2) == sorted(first)
    assert stream.totals() == totals_of(stream.fed)


def test_two_actions_on_one_epoch_see_the_same_rows_and_count_them_once(stream: Stream) -> None:
    feed_epochs(stream, 4)
    counts: list[tuple[int, int]] = []

    def sink(batch: DataFrame, epoch: int) -> None:
        counts.append((batch.count(), batch.select("key").distinct().count()))
        stream.keep(batch, epoch)

    stream.run(sink=sink)
    assert [rows for rows, _ in counts] == [distinct for _, distinct in counts]
    assert stream.totals() == totals_of(stream.fed)


def test_an_action_over_some_partitions_that_cowstate_does_not_see_is_found_in_the_next_epoch(
    stream: Stream,
) -> None:
    feed_epochs(stream, 2)
    with pytest.raises(StreamingQueryException, match="epoch 0 is incomplete") as caught:
        stream.run_unseen(lambda batch, _: batch.take(1) and None)
    message = str(caught.value)
    assert message.index("foreachBatch") < message.index("delete commits/0 and all later files")
    stream.roll_back(0)
    stream.run()
    assert stream.totals() == totals_of(stream.fed)


def test_take_beside_a_whole_action_is_fine(stream: Stream) -> None:
    feed_epochs(stream, 3)

    def sink(batch: DataFrame, epoch: int) -> None:
        batch.take(1)
        stream.keep(batch, epoch)
        batch.take(1)

    stream.run(sink=sink)
    assert stream.totals() == totals_of(stream.fed)


@pytest.mark.parametrize("parallelisms", [(2, 5, 3), (4, 1, 7)])
def test_every_restart_may_have_another_parallelism(
    stream: Stream, parallelisms: tuple[int, ...]
) -> None:
    before = stream.spark.conf.get("spark.cowstate.parallelism", None)
    try:
        for number, parallelism in enumerate(parallelisms):
            stream.spark.conf.set("spark.cowstate.parallelism", str(parallelism))
            feed_epochs(stream, 2, first=2 * number)
            stream.run()
    finally:
        if before is None:
            stream.spark.conf.unset("spark.cowstate.parallelism")
        else:
            stream.spark.conf.set("spark.cowstate.parallelism", before)
    assert stream.totals() == totals_of(stream.fed)
