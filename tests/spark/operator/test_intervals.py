"""Intervals of days to seconds work everywhere, and intervals of months are refused."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.tws_tester import TwsTester

import spark_state
from spark_state import live_view
from spark_state.errors import CowstateError
from tests.support.applications import streams
from tests.support.applications.streams import Stream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import configured
from tests.support.tables.table_jobs import read

pytestmark = pytest.mark.spark

SECOND = datetime.timedelta(seconds=1)
INTERVAL = "interval day to second"
OUTPUT = f"key string, told array<string>, last {INTERVAL}, all array<{INTERVAL}>"
BATCHES = ([("a", 1), ("b", -7), ("a", 90_061)], [("b", 5), ("a", 1), ("c", 0)], [("a", 2)])


class KeepsIntervals(Processor):
    """A processor with intervals in values, elements, user keys and nested types; emits all found
    values."""

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState(
            "value",
            f"d {INTERVAL}, s struct<d:interval hour to second>, a array<{INTERVAL}>, "
            f"m map<{INTERVAL},interval minute to second>, none void",
        )
        self._list = handle.getListState("list", f"d {INTERVAL}, n int")
        self._map = handle.getMapState("map", f"d {INTERVAL}, n int", f"e {INTERVAL}")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        told, seen = [], []
        for row in sorted(rows, key=lambda row: row.value):
            # A Row of PySpark's runner is equal to a tuple, but has another text.
            value = self._value.get()
            plain = None if value is None else (value[0], tuple(value[1]), *value[2:])
            entries = sorted((tuple(k), tuple(v)) for k, v in self._map.iterator())
            told.append(repr((plain, [*map(tuple, self._list.get())], entries)))
            self._value.update((row.d, (row.d,), [row.d, None], {row.d: row.d}, None))
            self._list.appendValue((row.d, None))
            self._map.updateValue((row.d, None), (row.d,))
            seen.append(row.d)
        yield Row(key=key[0] if isinstance(key, tuple) else key, told=told, last=seen[-1], all=seen)


def interval() -> Column:
    return F.make_dt_interval(secs="value")


def run(stream: Stream, parallelism: str) -> list[tuple[int, dict[str, Any]]]:
    """Run the query, and return new output rows with their batches."""
    emitted: list[tuple[int, dict[str, Any]]] = []
    source = stream.source().withColumn("d", interval())
    with configured(stream.spark, {"spark.cowstate.parallelism": parallelism}):
        output = source.groupBy("key").transformWithState(
            KeepsIntervals(), OUTPUT, "update", "None"
        )
        stream.run(
            output,
            lambda batch, epoch: emitted.extend((epoch, r.asDict()) for r in batch.collect()),
        )
    return sorted(emitted, key=lambda row: (row[0], row[1]["key"]))


@pytest.fixture(scope="module")
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    with streams.enabled(spark):
        yield spark


@pytest.fixture(scope="module")
def kept(
    enabled: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Stream, list[tuple[int, dict[str, Any]]]]:
    """A stream that ran at several parallelisms, and its output."""
    stream = Stream(enabled, tmp_path_factory.mktemp("intervals"))
    emitted = []
    for batch, parallelism in zip(BATCHES, ("2", "3", "1"), strict=True):
        stream.feed(batch)
        emitted += run(stream, parallelism=parallelism)
    return stream, emitted


def test_states_and_output_are_those_of_pyspark_s_own_runner(kept: Any) -> None:
    _, emitted = kept
    tester = TwsTester(KeepsIntervals())
    expected: list[tuple[int, dict[str, Any]]] = []
    for epoch, batch in enumerate(BATCHES):
        for key in sorted({key for key, _ in batch}):
            rows = [Row(key=key, value=n, d=n * SECOND) for k, n in batch if k == key]
            expected += [(epoch, row.asDict()) for row in tester.test(key, rows)]
    assert emitted == expected
    assert "datetime.timedelta(days=1, seconds=3661)" in emitted[-1][1]["told"][0]


def test_they_are_read_with_spark_and_without_it(kept: Any) -> None:
    stream, _ = kept
    store = str(stream.store())
    (value,) = read(stream.spark, store, stateVarName="value").where("key = 'b'").collect()
    five = 5 * SECOND
    assert value.asDict(recursive=True) == {
        "key": "b", "d": five, "s": {"d": five}, "a": [five, None], "m": {five: five}, "none": None
    }  # fmt: skip
    entries = read(stream.spark, store, stateVarName="map", flattenCollectionTypes="true")
    assert sorted(row.user_map_key.d for row in entries.where("key = 'a'").collect()) == [
        SECOND, 2 * SECOND, 90_061 * SECOND
    ]  # fmt: skip
    changes = read(
        stream.spark, store, stateVarName="value", readChangeFeed="true", startingVersion="0"
    )
    of_b = changes.where("key = 'b'").orderBy("_commit_version", "_change_type").collect()
    assert [(row._change_type, row.d) for row in of_b] == [
        ("insert", -7 * SECOND), ("update_postimage", five), ("update_preimage", -7 * SECOND)
    ]  # fmt: skip
    with live_view(store, state="value") as view:
        assert view.get("b")["m"] == [(five, five)]


class KeyedByInterval(Processor):
    """A processor that counts the rows of a key."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(k=key[0], n=count)


def test_they_are_keys(spark: SparkSession, stream: Stream) -> None:
    key = F.when(F.col("value") >= 0, interval()).cast("interval hour to second").alias("k")
    for parallelism in ("2", "3"):
        stream.feed([("a", 1), ("b", 90_000), ("a", 90_000), ("c", -1)])
        with configured(spark, {"spark.cowstate.parallelism": parallelism}):
            grouped = stream.source().select(key).groupBy("k")
            stream.run(
                spark_state.transform_with_state(
                    grouped, KeyedByInterval(), "k interval hour to second, n bigint",
                    "update", "None",
                ),
                lambda batch, _: batch.collect(),
            )  # fmt: skip
    store = str(stream.store())
    state = read(spark, store, stateVarName="count")
    hours = 90_000 * SECOND
    assert {row.k: row.n for row in state.collect()} == {None: 2, SECOND: 2, hours: 4}
    with configured(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        pushed = read(spark, store, stateVarName="count", pushFilters="true")
        assert pushed.where("k = interval '25:00:00' hour to second").collect() == [
            Row(k=hours, n=4)
        ]
    with live_view(store, state="count") as view:
        assert view.get(hours) == {"n": 4}


class HasType(KeyedByInterval):
    """A processor that declares a state of a type."""

    def __init__(self, data_type: str) -> None:
        self._type = data_type

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", f"n {self._type}")


@pytest.mark.parametrize("data_type", ["interval year to month", "interval month", "interval"])
def test_intervals_of_months_are_refused_with_spark_s_condition(
    spark: SparkSession, data_type: str
) -> None:
    grouped = spark.range(1).groupBy("id")
    for processor, output in ((HasType(f"array<{data_type}>"), "n int"), (HasType("int"), None)):
        schema = output or f"n {data_type}"
        with pytest.raises(
            PySparkTypeError, match=r"Column 'n' has it.*becomes a number"
        ) as caught:
            spark_state.transform_with_state(grouped, processor, schema, "update", "None")
        assert caught.value.getCondition() == "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION"
        assert isinstance(caught.value, CowstateError)
