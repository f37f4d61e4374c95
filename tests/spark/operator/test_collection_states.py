"""List and map states in queries behave as in Spark's operator, survive restarts, and can be
read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from tests.support.applications.streams import Stream, random_rows
from tests.support.processors.processors import KeepsValues, Processor
from tests.support.provider.provider_jobs import configured
from tests.support.tables.table_jobs import Changes, assert_rows, read

pytestmark = pytest.mark.spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TOLD = "key string, told array<string>"


class Tells(Processor):
    """A processor that calls every method of a list and a map state, and emits each result."""

    def init(self, handle: Any) -> None:
        self._list = handle.getListState("l", "a int, b struct<c:int,d:array<string>>")
        self._map = handle.getMapState("m", "k double, path array<int>", "v int, s struct<x:date>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        told = [self._tell(call) for call in (*self._of_list(), *self._of_map())]
        yield Row(key=key[0], told=told)

    @staticmethod
    def _tell(call: Callable[[], Any]) -> str:
        answer = call()
        if hasattr(answer, "__next__"):
            answer = sorted(answer, key=repr)
        parts = answer if isinstance(answer, list) else [answer]
        return f"{answer!r} {[type(part).__name__ for part in parts]}"

    def _of_list(self) -> Iterator[Callable[[], Any]]:
        state = self._list
        yield from (state.exists, state.get)
        yield lambda: state.appendValue((3, Row(c=1, d=["y", None])))
        yield lambda: state.appendList([(4, None), (None, (None, []))])
        yield from (state.exists, state.get)
        yield lambda: state.put([Row(a=9, b=None), [8, (1, ["z"])]])
        yield lambda: next(state.get())
        running = state.get()
        yield lambda: next(running)
        yield lambda: state.appendValue((7, None))
        yield from (lambda: running, state.get, state.clear, state.exists, state.get)
        yield lambda: state.appendValue((1, None))

    def _of_map(self) -> Iterator[Callable[[], Any]]:
        state, nan = self._map, float("nan")
        yield from (state.exists, state.iterator, state.keys, state.values)
        yield lambda: state.getValue((1.0, [1]))
        yield lambda: state.containsKey((1.0, [1]))
        yield lambda: state.removeKey((1.0, [1]))
        yield lambda: state.updateValue((1.0, [1, None]), (1, None))
        yield lambda: state.updateValue(Row(k=None, path=None), [None, None])
        yield lambda: state.updateValue((nan, []), (1, None))
        yield lambda: state.updateValue((float("nan"), []), (2, None))
        yield lambda: state.getValue((1.0, [1, None]))
        yield lambda: state.getValue((1.0, [1, None])).v
        yield lambda: state.getValue((nan, []))
        yield lambda: state.containsKey((None, None))
        yield from (state.exists, state.iterator, state.keys, state.values)
        yield lambda: list(map(state.removeKey, state.keys()))
        yield from (state.exists, state.keys)
        yield lambda: state.updateValue((1.0, None), (1, None))
        yield from (state.clear, state.exists)
        yield lambda: state.updateValue((2.0, [2]), (2, None))


Build = Callable[[DataFrame, StatefulProcessor], DataFrame]


def told_by(spark: SparkSession, folder: Path, build: Build) -> list[list[str]]:
    """The output of a query of two epochs, epoch by epoch."""
    stream, told = Stream(spark, folder), list[list[str]]()
    for _ in range(2):
        stream.feed([("a", 1)])
    stream.run(
        build(stream.source(), Tells()),
        lambda batch, _: told.extend(row.told for row in batch.collect()),
    )
    return told


def test_methods_return_what_they_do_in_sparks_own_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    with configured(spark, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}):
        expected = told_by(
            spark,
            tmp_path / "spark",
            lambda df, processor: df.groupBy("key").transformWithState(
                processor, TOLD, "update", "None"
            ),
        )
    told = told_by(
        spark,
        tmp_path / "cowstate",
        lambda df, processor: spark_state.transform_with_state(
            df.groupBy("key"), processor, TOLD, "update", "None"
        ),
    )
    assert len(told) == 2
    assert told == expected


def test_lists_and_maps_go_on_at_another_parallelism_and_are_read_as_columns(
    spark: SparkSession, stream: Stream
) -> None:
    for epoch, parallelism in enumerate(("2", "3", "1")):
        stream.feed([(key, value % 7) for key, value in random_rows(epoch, count=300, keys=40)])
        with configured(spark, {"spark.cowstate.parallelism": parallelism}):
            stream.run(stream.operator(KeepsValues()))
    store = str(stream.store())
    fed = spark.createDataFrame(stream.fed, "key string, value bigint")

    lists = read(spark, store, stateVarName="items")
    expected = fed.groupBy("key").agg(F.sort_array(F.collect_list("value")).alias("values"))
    stored = lists.select("key", F.sort_array("list_value.value").alias("values"))
    assert_df_equality(stored, expected, ignore_nullable=True, ignore_row_order=True)

    maps = read(spark, store, stateVarName="counts")
    assert maps.schema.simpleString() == (
        "struct<key:string,map_value:map<struct<value:bigint>,struct<times:bigint>>>"
    )
    counted = Counter(stream.fed)
    assert {
        (row.key, user_key.value): value.times
        for row in maps.collect()
        for user_key, value in row.map_value.items()
    } == counted

    elements = read(spark, store, stateVarName="items", flattenCollectionTypes="true")
    assert elements.columns == ["key", "list_element"]
    items = elements.select("key", "list_element.value")
    assert_df_equality(items, fed, ignore_nullable=True, ignore_row_order=True)
    entries = read(spark, store, stateVarName="counts", flattenCollectionTypes="true")
    assert entries.columns == ["key", "user_map_key", "user_map_value"]
    assert {
        (row.key, row.user_map_key.value): row.user_map_value.times for row in entries.collect()
    } == counted
    some = read(
        spark,
        store,
        stateVarName="counts",
        flattenCollectionTypes="true",
        columns="user_map_value",
        batchId=0,
    )
    assert some.columns == ["user_map_value"]
    assert_rows(some.agg(F.sum("user_map_value.times")), [(300,)])


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of an operator with a list, a map and a value state, after two epochs."""
    stream = Stream(spark, tmp_path_factory.mktemp("collections"))
    for value in (1, 2):
        stream.feed([("a", value)])
    stream.run(stream.operator(KeepsAll()))
    return str(stream.store())


class KeepsAll(KeepsValues):
    """KeepsValues with a value state beside the list and the map."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._seen = handle.getValueState("seen", "list_value array<struct<value:bigint>>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._seen.update(([(1,)],))
        yield from super().handleInputRows(key, rows, timerValues)


def test_a_change_is_of_a_whole_list_or_map(spark: SparkSession, store: str) -> None:
    feed = read(spark, store, stateVarName="items", readChangeFeed="true", startingVersion=0)
    rows = feed.orderBy("_commit_version", F.desc("_change_type")).collect()
    assert [([item.value for item in row.list_value], row["_change_type"]) for row in rows] == [
        ([1], "insert"),
        ([1], "update_preimage"),
        ([1, 2], "update_postimage"),
    ]


def test_lists_and_maps_are_streamed(spark: SparkSession, store: str, tmp_path: Path) -> None:
    for name, column, after in (
        ("items", "list_value", [[Row(value=1)], [Row(value=1), Row(value=2)]]),
        ("counts", "map_value", [{1: 1}, {1: 1, 2: 1}]),
    ):
        changes = Changes(spark, store, tmp_path / name)
        options = {"stateVarName": name, "maxVersionsPerTrigger": 1, "preimages": "false"}
        batches = changes.run(startingVersion="earliest", **options)
        rows = [row for batch in batches for row in batch]
        values = [row[column] for row in rows]
        if name == "counts":
            values = [
                {user_key.value: count.times for user_key, count in row.items()} for row in values
            ]
        assert values == after
        assert changes.run(**options) == []
