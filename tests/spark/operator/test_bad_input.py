"""A user's mistake gives a clear error that names the value and the way out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from checkpoint_store import StoreAccessError
from checkpoint_store.objects.object_info import UNPUBLISHED
from spark_state import (
    ConfigurationError,
    KeyGroupError,
    UnsupportedOperationError,
)
from tests.support.applications.streams import Stream
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark


class Holds(RunningTotals):
    def __init__(self, held: Any) -> None:
        self.held = [held]


def keyed(spark: SparkSession, *keys: str) -> Any:
    return spark.range(1).selectExpr("id", "id as value").groupBy(*map(F.expr, keys))


def plan(spark: SparkSession, **changes: Any) -> DataFrame:
    rows = spark.createDataFrame([("a", 1)], "key string, value bigint")
    arguments: dict[str, Any] = {
        "grouped": rows.groupBy("key"),
        "processor": RunningTotals(),
        "output_schema": TOTALS_SCHEMA,
        "output_mode": "update",
        "time_mode": "None",
    }
    return spark_state.transform_with_state(**arguments | changes)


REFUSED: dict[str, Callable[[SparkSession], dict[str, Any]]] = {
    r"got DataFrame; pass df\.groupBy": lambda spark: {"grouped": spark.range(1)},
    "must be an instance of a class": lambda _: {"processor": RunningTotals},
    "output_schema: 'key strin' is not a schema": lambda _: {"output_schema": "key strin"},
    "neither a StructType nor DDL text": lambda _: {"output_schema": 5},
    "operator name 'a/b' cannot name a directory": lambda _: {"name": "a/b"},
    "Holds cannot be pickled": lambda _: {"processor": Holds(threading.Lock())},
    "two key columns are called 'key'; rename": lambda spark: {
        "grouped": keyed(spark, "id as key", "value + 1 as key")
    },
    "key column '_op' .*alias": lambda spark: {"grouped": keyed(spark, "id as _op")},
    "key column '_state' .*alias": lambda spark: {"grouped": keyed(spark, "id as _state")},
    "key column '_key_group' .*alias": lambda spark: {"grouped": keyed(spark, "id as _key_group")},
}


@pytest.mark.parametrize("message", REFUSED)
def test_arguments_that_do_not_fit_are_refused(spark: SparkSession, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan(spark, **REFUSED[message](spark))


def test_a_processor_that_uses_a_broadcast_or_an_accumulator_is_refused(
    spark: SparkSession,
) -> None:
    context = spark.sparkContext
    with pytest.raises(UnsupportedOperationError, match=r"broadcast variable.* value itself"):
        plan(spark, processor=Holds(context.broadcast({"a": 1})))
    with pytest.raises(UnsupportedOperationError, match="an accumulator, which counts"):
        plan(spark, processor=Holds(context.accumulator(0)))


@pytest.mark.parametrize(
    ("column", "type_text"),
    [
        ("struct(array(collate('a', 'UTF8_LCASE')) as a)", "struct<a:array<string collate"),
        ("struct(collate('a', 'UTF8_LCASE') as s)", "struct<s:string collate UTF8_LCASE>"),
        ("array(collate('a', 'UTF8_LCASE'))", "array<string collate UTF8_LCASE>"),
        ("collate('a', 'UTF8_LCASE')", "string collate UTF8_LCASE"),
    ],
)
def test_a_key_without_a_stable_hash_is_refused(
    spark: SparkSession, column: str, type_text: str
) -> None:
    with pytest.raises(KeyGroupError, match="key column 'key' of type") as caught:
        plan(spark, grouped=keyed(spark, f"{column} as key"))
    assert type_text in str(caught.value)


class YieldsText(RunningTotals):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(key=key[0], rows="three", total=1)


class ReturnsNothing(RunningTotals):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (YieldsText(), "field 'rows' expects int64, got 'three' of type str"),
        (ReturnsNothing(), r"handleInputRows returned None for key \('a',\)"),
    ],
)
def test_what_does_not_match_its_schema_fails_the_query(
    stream: Stream, processor: StatefulProcessor, message: str
) -> None:
    stream.feed([("a", 1)])
    with pytest.raises(StreamingQueryException, match=message):
        stream.run(stream.operator(processor))


def test_a_store_is_tried_when_the_query_is_planned_and_no_object_is_left_there(
    stream: Stream, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a directory")
    with (
        configured(stream.spark, {"spark.cowstate.store": str(tmp_path / "file")}),
        pytest.raises(StoreAccessError, match=r"cannot use the store .*Not a directory"),
    ):
        stream.operator()
    with configured(stream.spark, {"spark.cowstate.store": str(tmp_path / "new")}):
        stream.operator()
    assert {path.name for path in (tmp_path / "new").rglob("*")} <= {UNPUBLISHED}


def test_another_max_parallelism_is_refused_naming_both(stream: Stream) -> None:
    stream.feed([("a", 1)])
    stream.run()
    stream.feed([("a", 1)])
    with (
        configured(stream.spark, {"spark.cowstate.maxParallelism": "64"}),
        pytest.raises(StreamingQueryException, match="max_parallelism 128, not 64"),
    ):
        stream.run()


def test_a_plain_thread_inside_foreach_batch_is_refused(stream: Stream) -> None:
    stream.feed([("a", 1)])
    errors: list[BaseException] = []

    def sink(batch: DataFrame, epoch: int) -> None:
        def act() -> None:
            try:
                batch.count()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    stream.run(sink=sink)
    assert "runs outside of its query's thread" in str(errors[0])
    assert "pyspark.InheritableThread" in str(errors[0])


@pytest.mark.parametrize("kind", ["coalesce", "union"])
def test_partitions_that_are_renumbered_downstream_are_refused(stream: Stream, kind: str) -> None:
    stream.feed([(f"key{number}", 1) for number in range(20)])
    output = stream.operator()
    if kind == "coalesce":
        output = output.coalesce(1)
    else:
        other = stream.source().selectExpr("key", "value as rows", "value as total")
        output = other.union(output)
    with pytest.raises(StreamingQueryException, match=r"repartition\(n\)"):
        stream.run(output)


def test_repartition_makes_coalesced_output_possible(stream: Stream) -> None:
    stream.feed([("a", 1), ("b", 2)])
    stream.run(stream.operator().repartition(2).coalesce(1))
    assert stream.totals() == {"a": (1, 1), "b": (1, 2)}


def test_the_exception_of_a_query_begins_with_what_made_it_fail(stream: Stream) -> None:
    class Refusing(RunningTotals):
        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:
            raise ValueError("the price is negative\nand has a second line")

    stream.feed([("a", 1)])
    with pytest.raises(StreamingQueryException) as failed:
        stream.run(stream.operator(Refusing()))
    lines = str(failed.value).splitlines()
    assert lines[:2] == ["ValueError: the price is negative", ""]
    assert lines[2].startswith("[STREAM_FAILED] Query [id = ")
    assert failed.value.getCondition() == "STREAM_FAILED"
    assert "in handleInputRows" in str(failed.value)
