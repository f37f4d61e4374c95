"""Initial state works as in Spark's own operator, over restarts and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import SessionNotSameException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.errors import ConfigurationError
from tests.support.applications.streams import Stream
from tests.support.processors.initial_states import BeginsWith, BeginsWithFrames, ExpiresWith
from tests.support.processors.processors import TOTALS_SCHEMA, FailingAt
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

INITIAL = [("a", 100), ("b", 200), ("a", 1000), ("only here", 5), (None, 7)]
BATCHES: list[list[Any]] = [
    [("a", 1), ("c", 2), (None, 3)],
    [("b", 4), ("a", 5)],
    [("only here", 6), ("c", 7), (None, 8)],
]
Emitted = list[tuple[int, str, int, int]]


def initial(spark: SparkSession) -> DataFrame:
    """The initial state. Its key has another name than the operator's key, and comes second."""
    return spark.createDataFrame(INITIAL, "name string, total bigint").select("total", "name")


def sparks(stream: Stream, processor: Any) -> Emitted:
    """The output of Spark's own operator, batch by batch."""
    begin = initial(stream.spark).groupBy("name")
    own = stream.on_spark(
        lambda own: (
            own.source()
            .groupBy("key")
            .transformWithState(processor, TOTALS_SCHEMA, "update", "None", begin)
        )
    )
    return sorted(own.kept(), key=repr)


def ours(stream: Stream, processor: Any, **options: Any) -> DataFrame:
    given = {"initial_state": initial(stream.spark).groupBy("name"), **options}
    return stream.operator(processor, **given)


def test_it_gives_what_spark_gives_over_restarts_at_other_parallelisms(stream: Stream) -> None:
    for batch, parallelism in zip(BATCHES, ("2", "3", "1"), strict=True):
        stream.feed(batch)
        with configured(stream.spark, {"spark.cowstate.parallelism": parallelism}):
            stream.run(ours(stream, BeginsWith()))
    kept = sorted(stream.kept(), key=repr)
    assert kept == sparks(stream, BeginsWith())
    assert (0, "a", 21, 1101) in kept
    assert (2, "only here", 11, 11) in kept


def test_the_pandas_form_gives_the_same(stream: Stream) -> None:
    for batch in BATCHES:
        stream.feed(batch)
    stream.run(
        spark_state.transform_with_state_in_pandas(
            stream.source().groupBy("key"),
            BeginsWithFrames(),
            TOTALS_SCHEMA,
            "update",
            "None",
            initial(stream.spark).groupBy("name"),
        )
    )
    assert sorted(stream.kept(), key=repr) == sparks(stream, BeginsWith())


def test_the_state_of_another_query_may_be_the_initial_state(stream: Stream) -> None:
    other = Stream(stream.spark, stream.folder / "other")
    other.feed([("a", 100), ("b", 200), ("a", 1000)])
    other.run()
    totals = stream.spark.read.format("cowstate").load(str(other.store()))
    stream.feed([("a", 1), ("c", 2)])
    stream.run(ours(stream, BeginsWith(), initial_state=totals.groupBy("key")))
    stream.feed([("b", 1)])
    stream.run(ours(stream, BeginsWith(), initial_state=totals.groupBy("key")))
    assert stream.totals() == {"a": (11, 1101), "b": (11, 201), "c": (1, 2)}


class FailsAndBegins(BeginsWith, FailingAt):
    """A processor that raises on a negative value."""


def test_a_first_batch_that_runs_again_has_it_again(stream: Stream) -> None:
    stream.feed([("a", 1)])
    stream.feed([("a", -1)])
    with pytest.raises(Exception, match="a negative value"):
        stream.run(ours(stream, FailsAndBegins(), name="totals"))
    stream.roll_back(0)
    stream.run(ours(stream, BeginsWith(), name="totals"))
    assert stream.totals() == {"a": (22, 1100)}


def test_timers_of_an_initial_state_fire(stream: Stream) -> None:
    """The event times are the values, in ms. The totals of the initial state are timers, too."""
    for value in (50, 150, 2_000, 2_001):
        stream.feed([("t", value)])
    timed = stream.source().withColumn("at", F.timestamp_millis("value"))
    stream.run(
        spark_state.transform_with_state(
            timed.withWatermark("at", "0 seconds").groupBy("key"),
            ExpiresWith(),
            TOTALS_SCHEMA,
            "update",
            "EventTime",
            initial(stream.spark).where("name is not null").groupBy("name"),
        )
    )
    fired = [(key, total) for _, key, rows, total in stream.kept() if rows == -1]
    assert sorted(fired) == [("a", 100), ("a", 1000), ("b", 200), ("only here", 5)]


def test_sessions_without_a_bound_on_arrow_batches_have_it_too(stream: Stream) -> None:
    """Spark's processes for Python sources need a bound; the operator has two Python sources."""
    stream.feed([("a", 1)])
    with configured(stream.spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "-1"}):
        grouped = stream.source().groupBy("key")
        begin = initial(stream.spark).where("name = 'a'").groupBy("name")
        stream.run(
            spark_state.transform_with_state(
                grouped, ExpiresWith(), TOTALS_SCHEMA, "update", "ProcessingTime", begin
            )
        )
    emitted = {(key, rows, total) for _, key, rows, total in stream.kept()}
    assert emitted == {("a", 21, 1101), ("a", -1, 100), ("a", -1, 1000)}


class ExpiresByRules(ExpiresWith):
    """ExpiresWith, which also keeps the rows of a broadcast stream."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._rules = handle.getBroadcastState("rules", "key string", "value bigint")

    def handleBroadcastRows(self, name: str, rows: Iterator[Row], state: Any) -> None:
        for row in rows:
            state["rules"].updateValue((row.key,), (row.value,))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        assert self._rules.exists()
        return super().handleInputRows(key, rows, timerValues)


def test_neither_other_input_moves_the_watermark_or_is_late(stream: Stream) -> None:
    """Values are event times in ms. The broadcast stream has values in the far future, the initial
    state in the far past."""
    rules = Stream(stream.spark, stream.folder / "rules")
    for value in (1_000_000, 150_000, 100_000):
        stream.feed([("t", value)])
        rules.feed([("r", 10 * value), ("past", 0)])
    keyed, broadcast = (
        own.source().withColumn("at", F.timestamp_millis("value")).withWatermark("at", "0 seconds")
        for own in (stream, rules)
    )
    past = initial(stream.spark).where("name = 'b'").withColumn("at", F.timestamp_millis("total"))
    stream.run(
        spark_state.transform_with_state(
            keyed.groupBy("key"),
            ExpiresByRules(),
            TOTALS_SCHEMA,
            "update",
            "EventTime",
            past.groupBy("name"),
            broadcast={"rules": broadcast},
        )
    )
    # The watermark of batch 1 is 1,000,000, which makes later rows late from batch 2 on.
    assert [row for row in stream.kept() if row[2] >= 0] == [
        (0, "t", 1, 1_000_000),
        (1, "t", 2, 1_150_000),
    ]
    assert [row[1:] for row in stream.kept() if row[2] < 0] == [("b", -1, 200)]


def test_a_batch_dataframe_has_one_too(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [row for batch in BATCHES for row in batch], "key string, value bigint"
    )
    for time_mode in ("None", "ProcessingTime"):
        out = spark_state.transform_with_state(
            rows.groupBy("key"),
            BeginsWith(),
            TOTALS_SCHEMA,
            "update",
            time_mode,
            initial(spark).groupBy("name"),
        )
        totals = {row.key: (row["rows"], row.total) for row in out.collect()}
        assert totals == {
            "a": (22, 1106),
            "b": (11, 204),
            "c": (2, 9),
            None: (12, 18),
            "only here": (11, 11),
        }


def noted_in(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Build a function that passes rows on, and leaves a file for each partition read."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid
        from pathlib import Path

        (Path(folder) / uuid.uuid4().hex).touch()
        yield from batches

    return note


@pytest.mark.parametrize("is_aggregated", [False, True])
def test_it_is_read_once_in_a_run_and_in_no_other_batch(
    stream: Stream, tmp_path: Path, is_aggregated: bool
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()

    def read_partitions() -> int:
        return len(list(notes.iterdir()))

    df = initial(stream.spark).repartition(2)
    df = df.mapInArrow(noted_in(str(notes)), "total bigint, name string")
    if is_aggregated:
        df = df.groupBy("name").agg(F.sum("total").alias("total"))
    for batch in BATCHES:
        stream.feed(batch)
    operator = ours(stream, BeginsWith(), initial_state=df.groupBy("name"))
    assert read_partitions() == 0
    stream.run(operator)
    assert read_partitions() == 2
    assert (1, "a", 12 if is_aggregated else 22, 1106) in stream.kept()


def test_another_key_is_refused_when_the_query_is_planned(stream: Stream) -> None:
    by_two = initial(stream.spark).groupBy("total", "name")
    message = r"grouped by \(total bigint, name string\), the operator by \(key string\)"
    with pytest.raises(ConfigurationError, match=message):
        ours(stream, BeginsWith(), initial_state=by_two)
    by_number = initial(stream.spark).groupBy("total")
    with pytest.raises(ConfigurationError, match="columns of the same types"):
        ours(stream, BeginsWith(), initial_state=by_number)


def test_a_stream_is_refused(stream: Stream) -> None:
    with pytest.raises(ConfigurationError, match="initial state cannot be a streaming DataFrame"):
        ours(stream, BeginsWith(), initial_state=stream.source().groupBy("key"))


def test_another_session_is_refused(stream: Stream) -> None:
    elsewhere = initial(stream.spark.newSession()).groupBy("name")
    with pytest.raises(SessionNotSameException, match="the initial state and the grouped"):
        ours(stream, BeginsWith(), initial_state=elsewhere)
