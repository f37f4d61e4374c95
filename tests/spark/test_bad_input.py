"""A user's mistake gives a clear error that names the value and the way out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
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


def plan(spark: SparkSession, grouped: Any = None, **changes: Any) -> DataFrame:
    arguments: dict[str, Any] = {
        "processor": RunningTotals(),
        "output_schema": TOTALS_SCHEMA,
        "output_mode": "update",
        "time_mode": "None",
    }
    if grouped is None:
        grouped = spark.createDataFrame([("a", 1)], "key string, value bigint").groupBy("key")
    return spark_state.transform_with_state(grouped, **{**arguments, **changes})


def test_a_dataframe_that_is_not_grouped_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"got DataFrame; call it with df\.groupBy"):
        plan(spark, spark.range(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processor": RunningTotals}, "pass an instance of it"),
        ({"output_schema": "key strin"}, "output_schema: 'key strin' is not a schema"),
        ({"output_schema": 5}, "neither a StructType nor DDL text"),
        ({"name": "a/b"}, "operator name 'a/b' cannot name a directory"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    spark: SparkSession, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan(spark, **changes)


class HoldsALock(RunningTotals):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_a_processor_that_cannot_be_pickled_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="HoldsALock cannot be pickled"):
        plan(spark, processor=HoldsALock())


class Holds(RunningTotals):
    def __init__(self, held: Any) -> None:
        self.held = [held]


def test_a_processor_that_uses_a_broadcast_is_refused(spark: SparkSession) -> None:
    broadcast = spark.sparkContext.broadcast({"a": 1})
    with pytest.raises(UnsupportedOperationError, match=r"broadcast variable.* value itself"):
        plan(spark, processor=Holds(broadcast))


def test_a_processor_that_uses_an_accumulator_is_refused(spark: SparkSession) -> None:
    counter = spark.sparkContext.accumulator(0)

    class Counting(RunningTotals):
        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Row]:
            counter.add(1)
            yield from super().handleInputRows(key, rows, timer_values)

    with pytest.raises(UnsupportedOperationError, match="an accumulator, which counts"):
        plan(spark, processor=Counting())


@pytest.mark.parametrize("name", ["_op", "_state", "_key_group"])
def test_a_key_column_with_a_name_of_state_files_is_refused(spark: SparkSession, name: str) -> None:
    grouped = spark.range(1).selectExpr(f"id as {name}", "id as value").groupBy(name)
    with pytest.raises(ConfigurationError, match=rf"key column '{name}' .*alias"):
        plan(spark, grouped)


def test_two_key_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    df = spark.range(1).selectExpr("id as key", "id as value")
    grouped = df.groupBy("key", (F.col("value") + 1).alias("key"))
    with pytest.raises(ConfigurationError, match="two key columns are called 'key'; rename"):
        plan(spark, grouped)


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
    grouped = spark.range(1).selectExpr(f"{column} as key", "id as value").groupBy("key")
    with pytest.raises(KeyGroupError, match="key column 'key' of type") as caught:
        plan(spark, grouped)
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


class OtherSchema(RunningTotals):
    def init(self, handle: Any) -> None:
        self._totals = handle.getValueState("totals", "rows int, total bigint")


def test_another_state_schema_is_refused_naming_both(stream: Stream) -> None:
    stream.feed([("a", 1)])
    stream.run(stream.operator(name="totals"))
    stream.feed([("a", 1)])
    with pytest.raises(StreamingQueryException, match="state 'totals' is in the store as") as error:
        stream.run(stream.operator(OtherSchema(), name="totals"))
    assert "in the store as (rows bigint, total bigint)" in str(error.value)
    assert "declares (rows int, total bigint)" in str(error.value)
    assert "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION]" in str(error.value)


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
