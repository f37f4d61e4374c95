"""A stream of an operator's state is right in both checkpointing modes while a subtask is late."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from checkpoint_store.objects.local_object_store import LocalObjectStore
from datasources.cowstate_source import CowStateDataSource
from tests.support.operators.keyed_operator import KeyedOperator
from tests.support.tables.table_jobs import Changes, in_order

pytestmark = pytest.mark.spark
MODES = ("exactly_once", "at_least_once")
ShownChange = tuple[int, int, str, int]

# Key 0 belongs to subtask 0, keys 4 and 5 to subtask 1. Both subtasks have run epochs 0 and 1.
EPOCHS = [{0: 1, 4: 1}, {4: 2}]
SNAPSHOT: list[ShownChange] = [(0, 1, "insert", 1), (4, 2, "insert", 1)]
OF_SUBTASK_0: list[ShownChange] = [(0, 1, "update_preimage", 2), (0, 3, "update_postimage", 2)]
OF_SUBTASK_1: list[ShownChange] = [
    (4, 2, "update_preimage", 2),
    (4, 3, "update_postimage", 2),
    (5, 3, "insert", 2),
]


class Streamed:
    """A query that reads an operator's store; a second run continues the first."""

    def __init__(self, spark: SparkSession, folder: Path, mode: str) -> None:
        self.changes = Changes(spark, str(folder / "store"), folder / mode)
        self.mode = mode

    def run(self, **options: Any) -> list[list[ShownChange]]:
        """Run to the end, and return the batches, each in order."""
        batches = self.changes.run(checkpointingMode=self.mode, **options)
        return [_shown(batch) for batch in batches]

    def offset(self) -> dict[str, Any]:
        """The newest offset of the query."""
        newest = max(
            (self.changes.checkpoint / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
        )
        offset: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
        assert offset.pop("table")["keys"] == ["key"]
        assert offset.pop("run") == 1
        return offset


def _shown(batch: list[Row]) -> list[ShownChange]:
    return in_order((*row[:2], *row[2:4]) for row in batch)


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the epochs, and the checkpoints of queries that have delivered the snapshot."""
    spark.dataSource.register(CowStateDataSource)
    folder = tmp_path_factory.mktemp("begun")
    operator = KeyedOperator(LocalObjectStore(folder / "store"))
    for epoch, changes in enumerate(EPOCHS):
        operator.run_epoch(epoch, changes)
    for mode in MODES:
        assert Streamed(spark, folder, mode).run() == [SNAPSHOT]
    return folder


@pytest.fixture
def operator(begun: Path, tmp_path: Path) -> KeyedOperator:
    """The same run of the operator, with a copy of the store in `tmp_path`."""
    shutil.copytree(begun / "store", tmp_path / "store")
    return KeyedOperator(LocalObjectStore(tmp_path / "store"))


@pytest.fixture
def streamed(spark: SparkSession, tmp_path: Path) -> Callable[[str], Streamed]:
    """Build a query that begins."""
    spark.dataSource.register(CowStateDataSource)
    return lambda mode: Streamed(spark, tmp_path, mode)


@pytest.fixture
def resumed(spark: SparkSession, begun: Path, tmp_path: Path) -> Callable[[str], Streamed]:
    """Build a query that has delivered the snapshot."""

    def resume(mode: str) -> Streamed:
        shutil.copytree(begun / mode, tmp_path / mode)
        return Streamed(spark, tmp_path, mode)

    return resume


def publish(operator: KeyedOperator, subtask: int, attempt: int = 1) -> None:
    """Publish the subtask's part of epoch 2, without a manifest."""
    base = operator.checkpoints.latest_before(2)
    operator.run_subtask(2, subtask, {0: 3, 4: 3, 5: 3}, base, attempt=attempt)


def test_exactly_once_waits_for_the_late_subtask_and_delivers_the_epoch_once(
    operator: KeyedOperator, resumed: Callable[[str], Streamed]
) -> None:
    query = resumed("exactly_once")
    publish(operator, 1)
    assert query.run() == []
    assert query.offset() == {"version": 1, "after": "version"}
    publish(operator, 1, attempt=2)
    publish(operator, 0)
    assert operator.checkpoints.complete(2, operator.run, 2) is not None
    assert query.run() == [in_order(OF_SUBTASK_0 + OF_SUBTASK_1)]
    assert query.run() == []


def test_at_least_once_delivers_what_is_there_and_the_rest_when_it_comes(
    operator: KeyedOperator, resumed: Callable[[str], Streamed]
) -> None:
    query = resumed("at_least_once")
    publish(operator, 1)
    assert query.run() == [OF_SUBTASK_1]
    position = {"epoch": 2, "run": operator.run.number, "attempt": 1, "parallelism": 2}
    assert query.offset() == {"version": 1, "after": "version", "channels": {"1": position}}
    assert query.run() == []
    publish(operator, 0)
    operator.checkpoints.complete(2, operator.run, 2)
    assert query.run() == [OF_SUBTASK_0]
    assert query.offset() == {"version": 2, "after": "version"}
    operator.run_epoch(3, {5: 4})
    (later,) = query.run()
    assert later == [(5, 3, "update_preimage", 3), (5, 4, "update_postimage", 3)]


def test_a_batch_that_spark_repeats_reads_the_same_channels_again(
    operator: KeyedOperator, resumed: Callable[[str], Streamed]
) -> None:
    query = resumed("at_least_once")
    publish(operator, 1)
    assert query.run() == [OF_SUBTASK_1]
    for file in (query.changes.checkpoint / "commits").glob("*1*"):
        file.unlink()
    publish(operator, 0)
    assert query.run() == [OF_SUBTASK_1, OF_SUBTASK_0]


@pytest.mark.parametrize(
    ("mode", "batches"),
    [
        ("exactly_once", [SNAPSHOT, in_order(OF_SUBTASK_0 + OF_SUBTASK_1)]),
        ("at_least_once", [SNAPSHOT, OF_SUBTASK_1, OF_SUBTASK_1, OF_SUBTASK_0]),
    ],
)
def test_a_query_that_goes_on_running_sees_barriers_as_they_arrive(
    operator: KeyedOperator,
    streamed: Callable[[str], Streamed],
    mode: str,
    batches: list[list[ShownChange]],
) -> None:
    changes = streamed(mode).changes
    writer = changes.frame(checkpointingMode=mode).writeStream.foreachBatch(changes.keep)
    writer = writer.option("checkpointLocation", str(changes.checkpoint))
    query = writer.trigger(processingTime="50 milliseconds").start()
    try:
        query.processAllAvailable()
        for subtask, attempt in ((1, 1), (1, 2), (0, 1)):
            publish(operator, subtask, attempt)
            query.processAllAvailable()
    finally:
        query.stop()
    assert [_shown(batch) for batch in changes.batches] == batches
