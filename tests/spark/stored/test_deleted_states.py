"""States deleted by init show in queries on cowstate as in queries on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from spark_state.errors import ConfigurationError
from tests.spark.stored.test_statestore_reads import (
    CHANGELOG,
    PROVIDER,
    all_but_partitions,
    types_of,
)
from tests.support.applications import streams
from tests.support.applications.streams import Stream
from tests.support.provider.provider_jobs import ROCKSDB, configured

pytestmark = pytest.mark.spark

SETTINGS = {
    PROVIDER: ROCKSDB,
    CHANGELOG: "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.cowstate.parallelism": "2",
}
DECLARED = {
    "value": lambda handle: handle.getValueState("value", "n int, key string"),
    "list": lambda handle: handle.getListState("list", "n int"),
    "map": lambda handle: handle.getMapState("map", "k bigint, t string", "n int"),
}


class Declares(StatefulProcessor):
    """A processor that counts a key's rows, and in init declares and deletes states as told."""

    def __init__(self, declares: tuple[str, ...] = (), deletes: tuple[str, ...] = ()) -> None:
        self._declares, self._deletes = declares, deletes

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n int")
        self._states = {name: DECLARED[name](handle) for name in self._declares}
        for name in self._deletes:
            handle.deleteIfExists(name)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (before,) = self._count.get() or (0,)
        self._count.update((before + len([*rows]),))
        if "value" in self._states.keys() - {*self._deletes}:
            self._states["value"].update((1, "x"))
        yield Row(key=key[0])


RUNS = (
    Declares(declares=("value",)),
    Declares(deletes=("value", "value", "never there")),
    Declares(declares=("value", "list", "map"), deletes=("map", "value", "list", "map")),
)
"""Each run of a query has two batches."""


@dataclass
class VisibleStates:
    """The visible result of a run: numDeletedStateVars of its batches, and the states in the
    metadata."""

    deleted: list[int]
    states: list[tuple[str, str, bool]]


@dataclass
class Ran:
    spark: SparkSession
    checkpoint: Path
    runs: list[VisibleStates]

    def read(self, options: dict[str, str]) -> DataFrame:
        reader = self.spark.read.format("statestore").options(**options)
        return reader.load(str(self.checkpoint))


def ran(spark: SparkSession, folder: Path) -> Ran:
    stream, runs = Stream(spark, folder), []
    for processor in RUNS:
        for _ in range(2):
            stream.feed([("a", 1), ("b", 2), ("c", 3)])
        output = (
            stream.source()
            .groupBy("key")
            .transformWithState(processor, "key string", "update", "None")
        )
        query = stream.run(output)
        (row,) = spark.read.format("state-metadata").load(str(stream.checkpoint)).collect()
        variables = json.loads(row.operatorProperties)["stateVariables"]
        runs.append(
            VisibleStates(
                [
                    progress.stateOperators[0].customMetrics["numDeletedStateVars"]
                    for progress in query.recentProgress
                    if progress.numInputRows
                ],
                sorted(
                    (v["stateName"], v["stateVariableType"], v["ttlEnabled"]) for v in variables
                ),
            )
        )
    return Ran(spark, stream.checkpoint, runs)


@pytest.fixture(scope="module")
def on_both(spark: SparkSession, tmp_path_factory: Any) -> Iterator[tuple[Ran, Ran]]:
    """The same runs on Spark and on cowstate."""
    root = tmp_path_factory.mktemp("deleted-states")
    with configured(spark, SETTINGS):
        theirs = ran(spark, root / "spark")
        with streams.enabled(spark):
            yield theirs, ran(spark, root / "ours")


def test_each_task_counts_the_states_that_it_deletes(on_both: tuple[Ran, Ran]) -> None:
    theirs, ours = on_both
    assert [run.deleted for run in theirs.runs] == [[0, 0], [2, 0], [6, 6]]
    assert [run.deleted for run in ours.runs] == [run.deleted for run in theirs.runs]


def test_the_metadata_lists_a_state_that_init_declares_and_deletes(
    on_both: tuple[Ran, Ran],
) -> None:
    theirs, ours = on_both
    assert [[name for name, _, _ in run.states] for run in theirs.runs] == [
        ["count", "value"],
        ["count"],
        ["count", "list", "map", "value"],
    ]
    assert [run.states for run in ours.runs] == [run.states for run in theirs.runs]


@pytest.mark.parametrize("state", DECLARED)
def test_a_state_that_init_declares_and_deletes_is_read_without_rows(
    on_both: tuple[Ran, Ran], state: str
) -> None:
    theirs, ours = on_both
    options = {"stateVarName": state}
    assert types_of(ours.read(options)) == types_of(theirs.read(options))
    assert all_but_partitions(ours.read(options)) == all_but_partitions(theirs.read(options)) == []


def test_before_it_was_deleted_it_has_its_rows(on_both: tuple[Ran, Ran]) -> None:
    theirs, ours = on_both
    options = {"stateVarName": "value", "batchId": "1"}
    assert len(all_but_partitions(ours.read(options))) == 3
    assert all_but_partitions(ours.read(options)) == all_but_partitions(theirs.read(options))


def test_its_changes_are_read_until_it_is_deleted(on_both: tuple[Ran, Ran]) -> None:
    _, ours = on_both
    feed = {"stateVarName": "value", "readChangeFeed": "true", "changeStartBatchId": "0"}
    assert ours.read({**feed, "changeEndBatchId": "1"}).count() == 6
    with pytest.raises(ConfigurationError, match=r"init deletes it in batch 5.*changeEndBatchId"):
        ours.read(feed)
