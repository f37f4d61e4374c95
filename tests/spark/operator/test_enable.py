"""`enable` runs existing jobs on cowstate with the results of Spark's own operator."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import (
    IllegalArgumentException,
    ParseException,
    PySparkException,
    StreamingQueryException,
)
from pyspark.sql import DataFrame, GroupedData, Row, SparkSession
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin

import spark_state
from checkpoint_store import open_store
from spark_state import ConfigurationError, KeyGroupError
from tests.spark.input.test_time_modes import TimedStream
from tests.support.applications import streams
from tests.support.applications.existing_jobs import Sums, by_frames, by_rows, last_seen
from tests.support.applications.streams import Stream, random_rows
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import ROCKSDB, configured

pytestmark = pytest.mark.spark
Job = Callable[[DataFrame], DataFrame]
ON_SPARK = "TransformWithState"
ON_COWSTATE = "_cowstate_"


def batch(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "key string, value bigint")


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().analyzed().toString())


def emitted(stream: Stream, job: Job) -> list[list[Row]]:
    """The output of each epoch of two runs of the job: two epochs, and an epoch after a restart."""
    epochs: dict[int, list[Row]] = {}

    def keep(output: DataFrame, epoch: int) -> None:
        epochs[epoch] = output.collect()

    for seed in range(3):
        stream.feed(random_rows(seed, count=60, keys=25))
        if seed:
            stream.run(job(stream.source()), sink=keep)
    return [epochs[epoch] for epoch in sorted(epochs)]


@pytest.mark.parametrize("job", [by_rows, by_frames])
def test_an_existing_job_emits_what_it_emits_on_spark(
    spark: SparkSession, tmp_path: Path, job: Job
) -> None:
    with configured(spark, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}):
        on_spark = emitted(Stream(spark, tmp_path / "spark"), job)
    with streams.enabled(spark):
        stream = Stream(spark, tmp_path / "cowstate")
        assert ON_COWSTATE in plan_of(job(stream.source()))
        on_cowstate = emitted(stream, job)
    assert len(on_cowstate) == 3
    for ours, theirs in zip(on_cowstate, on_spark, strict=True):
        assert sorted(ours) == sorted(theirs)


def test_timers_of_a_pandas_job_fire_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    batches = (
        [("a", 1_000), ("b", 15_000), ("a", 1_500)],
        [("b", 16_000), ("c", 31_000)],
        [("c", 60_000), ("a", 58_000)],
        [("d", 100_000)],
    )

    def kept(stream: TimedStream) -> list[Any]:
        stream.feed_all(batches)
        stream.run(last_seen(stream.watermarked()))
        return sorted(stream.kept())

    with configured(spark, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}):
        on_spark = kept(TimedStream(spark, tmp_path / "spark"))
    with streams.enabled(spark):
        on_cowstate = kept(TimedStream(spark, tmp_path / "cowstate"))
    assert on_cowstate == on_spark
    assert ("b", 2, 36_000) in [row[1:] for row in on_cowstate]


class SumsOfAnotherName(Sums):
    pass


def test_another_class_on_the_same_checkpoint_finds_the_state(
    enabled: SparkSession, stream: Stream
) -> None:
    stream.feed([("a", 1)])
    stream.run(by_rows(stream.source()))
    stream.feed([("a", 10)])
    rows: list[Row] = []
    second = (
        stream.source()
        .groupBy("key")
        .transformWithState(
            SumsOfAnotherName(),
            "key string, total bigint, kinds bigint, last bigint",
            "update",
            "None",
        )
    )
    query = stream.run(second, sink=lambda output, _: rows.extend(output.collect()))
    assert [row.total for row in rows] == [11]
    store = f"{enabled.conf.get('spark.cowstate.store')}/{query.id}/operator-0"
    assert open_store(store, state="total").read().num_rows == 1


def test_operators_that_follow_each_other_are_numbered(
    enabled: SparkSession, stream: Stream
) -> None:
    first = by_rows(stream.source()).selectExpr("key", "total as value")
    second = by_frames(first)
    assert "operator-0_cowstate_" in plan_of(first)
    assert "operator-1_cowstate_" in plan_of(second)
    stream.feed([("a", 1), ("b", 2)])
    rows: list[Row] = []
    stream.run(second, sink=lambda output, _: rows.extend(output.collect()))
    assert sorted((row.key, row.total) for row in rows) == [("a", 1), ("b", 2)]


def test_operators_side_by_side_need_names(enabled: SparkSession, stream: Stream) -> None:
    stream.feed([(f"key{number}", 1) for number in range(20)])
    left, right = (by_rows(stream.source()).repartition(2) for _ in range(2))
    with pytest.raises(StreamingQueryException, match=r"are called 'operator-0'.*name=…"):
        stream.run(left.union(right))


def test_another_session_of_the_process_keeps_the_operator_of_spark(enabled: SparkSession) -> None:
    other = enabled.newSession()
    with configured(other, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}):
        assert ON_SPARK in plan_of(by_rows(batch(other)))
        assert ON_SPARK in plan_of(by_frames(batch(other)))
    assert ON_COWSTATE not in plan_of(by_rows(batch(other)))
    assert ON_SPARK not in plan_of(by_rows(batch(enabled)))


def test_disable_gives_the_methods_back_and_both_may_be_called_twice(spark: SparkSession) -> None:
    spark_state.disable(spark)
    assert ON_SPARK in plan_of(by_rows(batch(spark)))
    for _ in range(2):
        spark_state.enable(spark)
        assert ON_SPARK not in plan_of(by_rows(batch(spark)))
    for _ in range(2):
        spark_state.disable(spark)
        assert ON_SPARK in plan_of(by_rows(batch(spark)))


def test_the_configuration_enables_a_session_of_configure(spark: SparkSession) -> None:
    spark_state.configure(SparkSession.builder)
    with configured(spark, {"spark.cowstate.enabled": "true"}):
        assert ON_SPARK not in plan_of(by_rows(batch(spark)))
    with (
        configured(spark, {"spark.cowstate.enabled": "yes"}),
        pytest.raises(ConfigurationError, match=r"enabled is 'yes'; allowed are false, true"),
    ):
        by_rows(batch(spark))


@pytest.mark.parametrize("name", ["transformWithState", "transformWithStateInPandas"])
def test_the_methods_keep_the_signature_of_spark(enabled: SparkSession, name: str) -> None:
    ours, theirs = getattr(GroupedData, name), getattr(PandasGroupedOpsMixin, name)
    assert ours is not theirs
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__doc__ == theirs.__doc__


@pytest.mark.parametrize("given", [SparkSession.builder, None])
def test_only_a_session_can_be_enabled(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="call getOrCreate first"):
        spark_state.enable(given)


def test_another_fallback_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"fallback is 'silent'; allowed are error, spark"):
        spark_state.enable(spark, fallback="silent")


def called(df: DataFrame, method: str = "transformWithState", **changes: Any) -> DataFrame:
    arguments: dict[str, Any] = {
        "statefulProcessor": RunningTotals(),
        "outputStructType": TOTALS_SCHEMA,
        "outputMode": "update",
        "timeMode": "None",
    }
    planned: DataFrame = getattr(df.groupBy("key"), method)(**{**arguments, **changes})
    return planned


REFUSED = "key column 'key' of type string collate"


def refused(spark: SparkSession) -> DataFrame:
    """The input of a job that cowstate cannot run and Spark can."""
    return spark.range(1).selectExpr("collate('a', 'UTF8_LCASE') as key", "id as value")


@pytest.mark.parametrize("method", ["transformWithState", "transformWithStateInPandas"])
def test_what_cannot_run_is_an_error_or_runs_on_spark_with_a_warning(
    enabled: SparkSession, method: str
) -> None:
    df = refused(enabled)
    with pytest.raises(KeyGroupError, match=REFUSED):
        called(df, method)
    spark_state.enable(enabled, fallback="spark")
    with pytest.warns(UserWarning, match=rf"{method} of RunningTotals runs on Spark.*{REFUSED}"):
        planned = called(df, method)
    assert ON_SPARK in plan_of(planned)
    with pytest.warns(UserWarning, match="runs on Spark and not on cowstate"):
        explicit = spark_state.transform_with_state(
            df.groupBy("key"), RunningTotals(), TOTALS_SCHEMA, "update", "None", name="totals"
        )
    assert ON_SPARK in plan_of(explicit)


def test_without_protobuf_spark_cannot_run_it_either(
    enabled: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.runtime_version", None)
    spark_state.enable(enabled, fallback="spark")
    with pytest.raises(ConfigurationError, match=rf"{REFUSED}.*pip install --upgrade protobuf"):
        called(refused(enabled))


def test_what_can_run_does_not_fall_back(enabled: SparkSession) -> None:
    spark_state.enable(enabled, fallback="spark")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert ON_SPARK not in plan_of(by_rows(batch(enabled)))
        initial = batch(enabled).groupBy("key")
        assert ON_SPARK not in plan_of(called(batch(enabled), initialState=initial))


@pytest.mark.parametrize(
    ("changes", "error", "condition"),
    [
        ({"outputMode": "foo"}, IllegalArgumentException, "STREAMING_OUTPUT_MODE.INVALID"),
        ({"timeMode": "foo"}, IllegalArgumentException, "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE"),
        ({"outputStructType": "key strin"}, ParseException, "UNSUPPORTED_DATATYPE"),
    ],
)
def test_wrong_arguments_are_the_errors_of_spark(
    spark: SparkSession, changes: dict[str, Any], error: type[PySparkException], condition: str
) -> None:
    spark_state.disable(spark)
    with pytest.raises(error) as on_spark:
        called(batch(spark), **changes)
    with streams.enabled(spark):
        spark_state.enable(spark, fallback="spark")
        with pytest.raises(error) as on_cowstate:
            called(batch(spark), **changes)
    assert isinstance(on_cowstate.value, ConfigurationError)
    for caught in (on_spark.value, on_cowstate.value):
        assert caught.getCondition() == condition
    assert on_spark.value.getSqlState() == on_cowstate.value.getSqlState()
    assert on_spark.value.getMessageParameters() == on_cowstate.value.getMessageParameters()
    message = str(on_spark.value).partition(" SQLSTATE")[0].strip()
    assert message in str(on_cowstate.value)


class NeverNull(RunningTotals):
    """A processor that also declares a state with a field that must not be null."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        handle.getListState("events", "id bigint not null, at timestamp")


def test_with_avro_a_state_with_a_field_that_is_never_null_is_the_error_of_spark(
    enabled: SparkSession,
) -> None:
    encoding = "spark.sql.streaming.stateStore.encodingFormat"
    with (
        configured(enabled, {encoding: "avro"}),
        pytest.raises(PySparkException, match="column family events must be nullable") as refusal,
    ):
        called(batch(enabled), statefulProcessor=NeverNull())
    assert refusal.value.getCondition() == "TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE"
    with configured(enabled, {encoding: "unsaferow"}):
        called(batch(enabled), statefulProcessor=NeverNull())


@pytest.mark.parametrize("mode", ["Append", "UPDATE", "complete"])
def test_output_modes_are_those_of_spark(enabled: SparkSession, mode: str) -> None:
    assert called(batch(enabled), outputMode=mode).count() == 2


def test_an_initial_state_that_is_not_grouped_is_refused(enabled: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"got DataFrame; pass df\.groupBy"):
        called(batch(enabled), initialState=batch(enabled))
