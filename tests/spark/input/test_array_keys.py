"""Keys of array type are hashed, ordered, shown, stored and read as in Spark."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructField, _parse_datatype_string

import spark_state
from checkpoint_store.state_reader import open_store
from spark_state import live_view
from spark_state.frozen_keys import frozen
from spark_state.key_group_hash import hashes_of
from spark_state.processor.input.key_grouping import InputLayout, group_by_key
from spark_state.processor.schemas import key_columns
from spark_state.testing import ScriptedOperator
from tests.support.applications.streams import Stream
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import configured
from tests.support.tables.table_jobs import read

pytestmark = pytest.mark.spark

ELEMENTS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "smallint": [-3, 0, 7],
    "bigint": [1 << 40, -1],
    "double": [0.5, -1.0, float("nan"), float("inf"), 0.0],
    "string": ["", "a", "ab", "\uffff", "\U00010000"],
    "binary": [b"", b"\x00", b"\xff"],
    "date": [datetime.date(1969, 12, 31), datetime.date(2020, 1, 1)],
    "interval day to second": [datetime.timedelta(1), datetime.timedelta(-1)],
    "struct<a:int,b:array<string>>": [(1, ["x"]), (1, []), (None, [None]), (0, None)],
    "array<int>": [[], [1], [1, None], [None], [2]],
}


@pytest.mark.parametrize("element_type", ELEMENTS)
def test_hash_and_order_are_those_of_spark(spark: SparkSession, element_type: str) -> None:
    chance = random.Random(element_type)
    arrays: list[Any] = [None, [], [None]]
    for _ in range(40):
        length = chance.randrange(4)
        arrays.append([chance.choice([*ELEMENTS[element_type], None]) for _ in range(length)])
    df = spark.createDataFrame([(array,) for array in arrays], f"key array<{element_type}>")
    hashed = df.select("key", F.xxhash64("key").alias("hash")).orderBy("key").toArrow()
    data_type = ArrayType(_parse_datatype_string(element_type))
    keys = hashed.column("key").combine_chunks()
    hashes = hashes_of([keys], [data_type.jsonValue()], len(keys)).tolist()
    assert hashes == [of_spark % (1 << 64) for of_spark in hashed.column("hash").to_pylist()]

    columns = key_columns([StructField("key", data_type)])
    shuffled = hashed.take(chance.sample(range(len(arrays)), len(arrays)))
    keyed = group_by_key(shuffled, InputLayout(("key",), (0,)), columns)
    in_order = [*dict.fromkeys(frozen(key) for key in hashed.column("key").to_pylist())]
    assert [key for (key,) in keyed.keys] == in_order
    assert sum(keyed.counts) == len(arrays)


class Visits(Processor):
    """A processor with a value and a list that emits the key and the number of its rows."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n bigint")
        self._values = handle.getListState("values", "value bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        text = repr(key)
        count = (self._count.get() or (0,))[0]
        for row in rows:
            count += 1
            self._values.appendValue((row.value,))
        if isinstance(key[0], list):
            key[0].append("changed by the processor")
        self._count.update((count,))
        yield Row(key=text, rows=count)


OUTPUT = "key string, rows bigint"
TAGS = "if(value >= 0, split(key, ''), null) AS tags"
POINTS = """array(named_struct('x', cast(value % 2 AS int), 'y', array(value)),
    if(value > 5, named_struct('x', 1, 'y', array(value)), null)) AS points"""
BATCHES = (
    [("ab", 1), ("a", 2), ("ab", 1), ("", 7), ("b", -1)],
    [("ab", 1), ("abc", 8), ("", 7), ("b", -1), ("b", -1)],
)


def run(stream: Stream, plan: Any) -> list[Row]:
    emitted: list[Row] = []
    stream.run(plan, lambda batch, _: emitted.extend(batch.collect()))
    return emitted


def grouped(stream: Stream) -> Any:
    return stream.source().selectExpr("value", TAGS, POINTS).groupBy("tags", "points")


def test_processors_see_lists_and_dicts_in_the_order_of_spark(
    spark: SparkSession, stream: Stream
) -> None:
    """The expected rows come from an aggregation: Spark's Python operator fails with array keys."""
    for batch in BATCHES:
        stream.feed(batch)
    counts: Counter[Any] = Counter()
    expected = []
    for batch in BATCHES:
        fed = spark.createDataFrame(batch, "key string, value bigint").selectExpr(TAGS, POINTS)
        for row in fed.groupBy("tags", "points").count().orderBy("tags", "points").collect():
            points = [point and point.asDict() for point in row.points]
            key = repr((row.tags, points))
            counts[key] += row["count"]
            expected.append(Row(key=key, rows=counts[key]))
    with configured(spark, {"spark.cowstate.parallelism": "1"}):
        plan = spark_state.transform_with_state(grouped(stream), Visits(), OUTPUT, "update", "None")
        assert run(stream, plan) == expected
    assert "([''], [{'x': 1, 'y': [7]}, {'x': 1, 'y': [7]}])" in {row.key for row in expected}


def test_their_state_is_read_by_every_reader_after_a_restart_at_another_parallelism(
    enabled: SparkSession, stream: Stream
) -> None:
    spark = enabled
    for batch, parallelism in zip(BATCHES, ("2", "3"), strict=True):
        stream.feed(batch)
        with configured(spark, {"spark.cowstate.parallelism": parallelism}):
            run(stream, grouped(stream).transformWithState(Visits(), OUTPUT, "update", "None"))
    reader = spark.read.format("statestore").option("stateVarName", "count")
    shown = reader.load(str(stream.checkpoint)).select("key.*", "value.n").collect()
    fed = spark.createDataFrame(stream.fed, "key string, value bigint")
    per_key = fed.selectExpr(TAGS, POINTS).groupBy("tags", "points")
    expected = sorted(map(repr, per_key.agg(F.count("*").alias("n")).collect()))
    assert sorted(map(repr, shown)) == expected

    store = str(stream.store())
    count = read(spark, store, stateVarName="count")
    assert sorted(map(repr, count.collect())) == expected
    values = read(spark, store, stateVarName="values", flattenCollectionTypes="true")
    assert values.count() == len(stream.fed)
    changes = read(
        spark, store, stateVarName="count", readChangeFeed="true", startingVersion="0"
    ).groupBy("_change_type").count()  # fmt: skip
    assert dict(changes.collect()) == {
        "insert": 5, "update_preimage": 3, "update_postimage": 3
    }  # fmt: skip
    with configured(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        pushed = read(spark, store, stateVarName="count", pushFilters="true")
        assert pushed.where(F.col("tags") == F.array(F.lit("b"))).count() == 0
        (row,) = pushed.where(F.col("tags") == F.array(F.lit("a"), F.lit("b"))).collect()
        assert row.n == 3
    with live_view(store, state="count") as view:
        assert view.get((["a", "b"], [{"x": 1, "y": [1]}, None])) == {"n": 3}
        assert all(view.get(key) == value for key, value in view)
        assert view.snapshot().to_arrow().num_rows == 5
    assert open_store(store, state="count").read().num_rows == 5


def test_a_scripted_operator_has_them() -> None:
    with ScriptedOperator(
        Visits(), rows="value bigint, tags array<string>", key="tags", output=OUTPUT
    ) as operator:
        operator.batch([(1, ["a"]), (2, ["a"]), (3, [])])
        operator.restart(parallelism=3)
        assert operator.batch([(4, ["a"]), (5, None)]) == [
            Row(key="(None,)", rows=1), Row(key="(['a'],)", rows=3)
        ]  # fmt: skip
        assert operator.state("count") == {None: {"n": 1}, ("a",): {"n": 3}, (): {"n": 1}}
