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
from tests.support.processors.processors import POISON, KeepsValues, KillingOnce

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
