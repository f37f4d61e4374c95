"""Change feeds of Spark's format `statestore` are the same on cowstate operators as on Spark's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.spark.stored.test_statestore_reads import CHANGELOG, PROVIDER
from tests.support.applications import streams
from tests.support.applications.streams import Stream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import ROCKSDB, configured

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
BATCHES = (
    [("a", 1), ("b", 2)],
    [("a", 3), ("b", 4)],
    [("a", 5), ("b", 6), ("c", 1)],
    [("a", 8), ("b", 7)],
)


class ChangesStates(Processor):
    """A processor that changes a list, a map and a value as told by the value of a row."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", "n bigint", self._ttl_ms)
        self._list = handle.getListState("list", "n bigint, by map<string,int>", self._ttl_ms)
        self._map = handle.getMapState(
            "map", "k bigint, t array<string>", "n bigint, by map<string,int>", self._ttl_ms
        )
        self._plain = handle.getMapState("plain", "k bigint", "n bigint", self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            getattr(self, f"_do_{row.value}")()
        return iter([])

    def _do_1(self) -> None:
        self._value.update((1,))
        self._list.appendList([(1, {"x": 1}), (2, None)])
        self._map.updateValue((1, ["x"]), (1, {"x": 1, "y": 2}))
        self._map.updateValue((2, None), (None, None))
        self._plain.updateValue((1,), (1,))

    def _do_2(self) -> None:
        self._list.appendValue((1, None))
        self._map.updateValue((None, [None]), (1, {}))

    def _do_3(self) -> None:
        self._list.appendValue((None, {"x": None}))
        self._map.updateValue((1, ["x"]), (1, {"x": 1, "y": 3}))
        self._plain.updateValue((1,), (None,))
        self._plain.updateValue((2,), (2,))

    def _do_4(self) -> None:
        self._list.put([(200, {"x": 5}), (201, None)])
        self._map.removeKey((None, [None]))

    def _do_5(self) -> None:
        for state in (self._value, self._list):
            state.clear()
        self._map.removeKey((2, None))
        self._plain.clear()

    def _do_6(self) -> None:
        self._value.update((6,))
        self._list.appendList([(300, None), (200, {"x": 5})])

    def _do_7(self) -> None:
        self._list.put([(7, {"z": 1})])
        self._map.updateValue((7, []), (7, None))

    def _do_8(self) -> None:
        self._list.appendValue((8, None))
        self._map.updateValue((1, ["x"]), (None, {}))


def ran(spark: SparkSession, folder: Path, ttl_ms: int | None) -> Path:
    stream = Stream(spark, folder)
    mode = "None" if ttl_ms is None else "ProcessingTime"
    for batch in BATCHES:
        stream.feed(batch)
    grouped = stream.source().groupBy("key")
    stream.run(grouped.transformWithState(ChangesStates(ttl_ms), "key string", "update", mode))
    return stream.checkpoint


@pytest.fixture(scope="module", params=[None, HOUR_MS], ids=["kept", "expiring"])
def checkpoints(
    request: Any, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path, bool]]:
    """The checkpoints on Spark and on cowstate, and True if their states expire."""
    root = tmp_path_factory.mktemp("state-changes")
    settings = {
        PROVIDER: ROCKSDB,
        CHANGELOG: "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    with configured(spark, settings):
        on_spark = ran(spark, root / "spark", request.param)
        with streams.enabled(spark):
            yield on_spark, ran(spark, root / "cowstate", request.param), request.param is not None


def read(spark: SparkSession, checkpoint: Path, **options: str) -> DataFrame:
    options = {"readChangeFeed": "true", **options}
    return spark.read.format("statestore").options(**options).load(str(checkpoint))


def told(df: DataFrame, expires: bool) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """The names and types, and the rows by key and batch in order, without expiry times."""
    *names, last, _ = df.columns
    value = F.col(last)["value"].alias(last) if expires else F.col(last)
    shown = df.select(*names, value)
    types = [(field.name, field.dataType.simpleString()) for field in shown.schema]
    rows = [row.asDict(recursive=True) for row in shown.collect()]
    by_key: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        by_key.setdefault((row["key"]["key"], row["batch_id"]), []).append(repr(row))
    of_map = "user_map_key" in names  # Spark gives no order of entries
    return types, [sorted(by_key[key]) if of_map else by_key[key] for key in sorted(by_key)]


@pytest.mark.parametrize("state", ["value", "list", "map", "plain"])
def test_the_changes_are_those_of_spark(
    spark: SparkSession, checkpoints: tuple[Path, Path, bool], state: str
) -> None:
    on_spark, on_cowstate, expires = checkpoints
    for options in (
        {"changeStartBatchId": "0"},
        {"changeStartBatchId": "2", "changeEndBatchId": "3"},
    ):
        theirs = told(read(spark, on_spark, stateVarName=state, **options), expires)
        ours = told(read(spark, on_cowstate, stateVarName=state, **options), expires)
        assert ours == theirs
        assert ours[1]


REFUSED: list[dict[str, str]] = [
    {},
    {"changeStartBatchId": "-1"},
    {"changeStartBatchId": "3", "changeEndBatchId": "1"},
    {"changeStartBatchId": "0", "changeEndBatchId": "99"},
    {"changeStartBatchId": "0", "batchId": "1"},
    {"changeStartBatchId": "0", "snapshotStartBatchId": "0", "snapshotPartitionId": "0"},
    {"changeStartBatchId": "0", "readChangeFeed": "false"},
    {"changeEndBatchId": "0", "readChangeFeed": "false"},
]


@pytest.mark.parametrize("options", REFUSED, ids=json.dumps)
def test_what_spark_refuses_is_refused_with_its_condition(
    spark: SparkSession, checkpoints: tuple[Path, Path, bool], options: dict[str, str]
) -> None:
    conditions = []
    for checkpoint in checkpoints[:2]:
        with pytest.raises(PySparkException) as caught:
            read(spark, checkpoint, stateVarName="list", **options)
        conditions.append((caught.value.getCondition(), caught.value.getSqlState()))
    assert conditions[0] == conditions[1]
