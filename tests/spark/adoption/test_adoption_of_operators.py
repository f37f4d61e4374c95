"""`cowstate adopt` takes over the state of Spark's own transformWithState."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

import spark_state
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.state_reader import open_store
from cowstate.cli.command_line import main
from spark_state.errors import ConfigurationError
from spark_state.spark.adoption import operator_adoption
from tests.spark.input.test_time_modes import TimedStream
from tests.spark.operator.test_timers import BATCHES as TIMED_BATCHES
from tests.spark.operator.test_timers import FIRED, EmitsWhenIdle
from tests.support.applications.lost_commits import forget_last_commit
from tests.support.applications.streams import Stream
from tests.support.provider.adopted_operators import (
    AVRO,
    BATCHES,
    SEEN,
    UNSAFE_ROWS,
    AdoptedJob,
    EveryState,
    EveryStateOfFrames,
    EveryTimedState,
    store_of,
)
from tests.support.provider.adoption_jobs import contents, damage
from tests.support.provider.provider_jobs import (
    PROVIDER_KEY,
    ROCKSDB,
    STATE_STORE,
    THROUGH_MANAGER,
    Options,
    configured,
)

pytestmark = pytest.mark.spark

JOBS: dict[str, tuple[type[StatefulProcessor], str, Options]] = {
    "unsaferow": (EveryState, "None", UNSAFE_ROWS),
    "avro": (EveryState, "None", AVRO),
    "timed": (EveryTimedState, "ProcessingTime", UNSAFE_ROWS),
    "pandas, format 2": (
        EveryStateOfFrames,
        "None",
        {f"{STATE_STORE}.checkpointFormatVersion": "2"},
    ),
}
Stopped = Callable[[str], AdoptedJob]


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Build jobs that stopped on Spark before their third batch; each test gets copies."""

    @cache
    def job(name: str) -> AdoptedJob:
        processor, mode, settings = JOBS[name]
        ran = AdoptedJob(spark, tmp_path_factory.mktemp("stopped"), processor(), mode)
        for rows in BATCHES[:2]:
            ran.feed(rows)
        ran.on_spark(settings)
        ran.feed(BATCHES[2])
        return ran

    return job


def as_text(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as text, independent of the order of rows and of map entries."""
    for row in rows:
        if "map_value" in row:
            row["map_value"] = sorted(map(repr, row["map_value"]))
    return sorted(map(repr, rows))


def rows_of_store(job: AdoptedJob, state: str) -> list[str]:
    return as_text(open_store(store_of(job), state=state).read().to_pylist())


def rows_of_spark(job: AdoptedJob, state: str) -> list[str]:
    reader = job.spark.read.format("statestore").option("stateVarName", state)
    df = reader.option("flattenCollectionTypes", "false").load(str(job.checkpoint))
    columns = [column for column in df.columns if column not in ("key", "partition_id")]
    df = df.select("key.*", *("value.*" if column == "value" else column for column in columns))
    return as_text(df.toArrow().to_pylist())


@pytest.mark.parametrize("name", JOBS)
def test_a_query_goes_on_as_if_it_had_stayed_on_spark(
    stopped: Stopped, tmp_path: Path, name: str
) -> None:
    base = stopped(name)
    expected, job = base.copy(tmp_path / "spark"), base.copy(tmp_path / "cowstate")
    assert job.adopt("--apply", "--force") == 0
    expected.on_spark(JOBS[name][2])
    job.on_cowstate()
    assert job.shown() == expected.shown()
    assert len(job.shown()) >= 6
    if base.mode == "None":
        for state in ("total", "last", "kinds"):
            # Only the session knows the format of a checkpoint.
            with configured(base.spark, JOBS[name][2]):
                of_spark = rows_of_spark(expected, state)
            assert rows_of_store(job, state) == of_spark


def test_without_adoption_the_query_is_refused_and_the_command_is_named(
    stopped: Stopped, tmp_path: Path
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    before = contents(job.checkpoint)
    with pytest.raises(ConfigurationError, match=rf"cowstate adopt {job.checkpoint} --apply"):
        job.on_cowstate()
    assert contents(job.checkpoint) == before
    assert not Path(store_of(job).removeprefix("file://")).exists()


def test_a_dry_run_says_what_is_there_and_changes_nothing(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stopped("timed").copy(tmp_path / "job")
    assert job.adopt() == 0
    text = capsys.readouterr().out
    assert job.adopt("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert not Path(store_of(job).removeprefix("file://")).exists()
    assert report["target"] == store_of(job)
    assert (report["epoch"], report["time_mode"]) == (1, "ProcessingTime")
    assert [(state["name"], state["kind"], state["expires"]) for state in report["states"]] == [
        ("$procTimers", "timers", False),
        ("kinds", "map", True),
        ("last", "list", True),
        ("total", "value", True),
    ]
    assert report["edits"] == ["offsets/0", "offsets/1"]
    assert report["sources"] == 1
    assert "sources" not in text
    for word in (store_of(job), "kinds: map, with a time to live", "Nothing was changed"):
        assert word in text


def test_a_batch_without_rows_keeps_other_drivers_out_and_comes_first(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = stopped("timed")
    expected, job = base.copy(tmp_path / "spark"), base.copy(tmp_path / "cowstate")
    assert job.adopt("--apply") == 0
    assert (job.checkpoint / "offsets" / "2").exists()
    assert job.adopt("--revert") == 0
    assert job.adopt("--apply") == 2
    assert "batch 2" in capsys.readouterr().err
    assert job.adopt("--apply", "--force") == 0
    expected.on_spark(JOBS["timed"][2])
    job.on_cowstate()
    assert {*map(str, job.shown())} == {*map(str, expected.shown())}
    assert (job.checkpoint / "commits" / "3").exists()


def test_an_adoption_whose_store_a_run_uses_is_not_reverted_until_it_is_forced(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    assert job.adopt("--apply") == 0
    store = CompletedCheckpointStore(open_object_store(store_of(job)))
    store.runs.register("run-of-the-query")
    assert job.adopt("--revert") == 2
    assert "run run-of-the-query of the query has begun to use" in capsys.readouterr().err
    assert job.adopt("--revert", "--force") == 0


@pytest.mark.parametrize("apply", [[], ["--apply", "--force"]])
def test_the_option_for_the_providers_state_is_refused(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str], apply: list[str]
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    before = contents(job.checkpoint)
    assert job.adopt("--store", f"{tmp_path}/states", *apply) == 2
    assert "name its store with --conf spark.cowstate.store=URL" in capsys.readouterr().err
    assert contents(job.checkpoint) == before


def test_damaged_state_is_told_and_nothing_is_changed(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    for file in job.checkpoint.glob("state/0/*/2.zip"):
        damage(file)
    before = contents(job.checkpoint)
    assert job.adopt("--apply", "--force") == 2
    assert "CANNOT_LOAD_STATE_STORE" in capsys.readouterr().err
    assert contents(job.checkpoint) == before


def test_what_the_store_has_differently_is_told_and_nothing_is_changed(
    stopped: Stopped,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    before = contents(job.checkpoint)
    counted = operator_adoption.checksums
    seen: list[dict[int, tuple[int, int]]] = []

    def one_row_less(rows: DataFrame) -> dict[int, tuple[int, int]]:
        seen.append(counted(rows.limit(11) if seen else rows))
        return seen[-1]

    monkeypatch.setattr(operator_adoption, "checksums", one_row_less)
    assert job.adopt("--apply", "--force") == 2
    assert "rows with checksum" in capsys.readouterr().err
    assert contents(job.checkpoint) == before
    assert contents(Path(store_of(job).removeprefix("file://"))) == {}


def test_a_store_that_has_epochs_is_not_written_over(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    manifests = Path(store_of(job).removeprefix("file://")) / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "0.json").write_text("{}")
    for arguments in ([], ["--apply", "--force"]):
        assert job.adopt(*arguments) == 2
        assert "has epochs of this query already" in capsys.readouterr().err


def test_a_key_that_cowstate_cannot_hold_is_named_in_the_dry_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = AdoptedJob(spark, tmp_path, EveryState())
    job.key_name = "_state"
    job.feed([("a", 1)])
    job.on_spark()
    assert job.adopt() == 2
    assert "key column '_state' has a name that state files use" in capsys.readouterr().err


def test_in_event_time_timers_and_watermark_go_on(spark: SparkSession, tmp_path: Path) -> None:
    def output(stream: TimedStream) -> DataFrame:
        grouped = stream.watermarked().groupBy("key")
        return grouped.transformWithState(EmitsWhenIdle(), FIRED, "update", "EventTime")

    own, adopted = (TimedStream(spark, tmp_path / name) for name in ("spark", "cowstate"))
    for batches in (TIMED_BATCHES[:2], TIMED_BATCHES[2:]):
        for stream in (own, adopted):
            stream.feed_all(batches)
            stream.settings = {**THROUGH_MANAGER, PROVIDER_KEY: ROCKSDB}
        own.run(output(own))
        if adopted.committed():
            assert main(["adopt", str(adopted.checkpoint), "--apply", "--force"]) == 0
            adopted.settings = THROUGH_MANAGER
            spark_state.enable(spark)
        adopted.run(output(adopted))
        spark_state.disable(spark)
    assert sorted(adopted.kept()) == sorted(own.kept())
    assert len(own.kept()) >= 5


class FromCowstate(EveryState):
    """A processor that begins with states read by format("cowstate")."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.total.update((initialState["total"], tuple(initialState["parts"])))
        self.last.put([(item["value"], item["name"]) for item in initialState["list_value"]])
        for entry in initialState["entries"]:
            user_key, value = entry["key"], entry["value"]
            self.kinds.updateValue(
                (user_key["kind"], user_key["name"]), (value["times"], dict(value["by"]))
            )


def test_spark_s_own_operator_goes_on_from_what_is_read_of_cowstate(
    stopped: Stopped, tmp_path: Path
) -> None:
    base = stopped("unsaferow")
    job = base.copy(tmp_path / "cowstate")
    assert job.adopt("--apply", "--force") == 0

    def state(name: str) -> DataFrame:
        reader = job.spark.read.format("cowstate").option("stateVarName", name)
        return reader.load(store_of(job))

    entries = state("kinds").select("key", F.map_entries("map_value").alias("entries"))
    on_key = F.col("t.key").eqNullSafe(F.col("l.key")) & F.col("t.key").eqNullSafe(F.col("e.key"))
    joined = state("total").alias("t").join(state("last").alias("l"), F.expr("t.key <=> l.key"))
    initial = joined.join(entries.alias("e"), on_key).select(
        "t.key", "t.total", "t.parts", "l.list_value", "e.entries"
    )
    back = AdoptedJob(job.spark, tmp_path / "back", FromCowstate())
    back.initial = initial.localCheckpoint()
    job.on_cowstate()
    back.feed(BATCHES[2])
    back.on_spark()
    assert back.shown() == job.shown()
    assert len(back.shown()) == 6


def test_a_batch_that_was_not_committed_runs_again_from_the_state_before_it(
    stopped: Stopped, tmp_path: Path
) -> None:
    base = stopped("timed")
    expected, job = base.copy(tmp_path / "spark"), base.copy(tmp_path / "cowstate")
    for each in (expected, job):
        assert forget_last_commit(each.checkpoint) == 1
    assert job.adopt("--apply", "--force") == 0
    expected.on_spark(JOBS["timed"][2])
    job.on_cowstate()
    assert job.shown() == expected.shown()


class WithoutNulls(EveryState):
    """A processor whose schemas forbid nulls."""

    def init(self, handle: Any) -> None:
        schema = StructType([StructField("total", LongType(), nullable=False)])
        self.sum = handle.getValueState("sum", schema)

    def keep(self, key: str | None, values: list[int]) -> str:
        total = (self.sum.get()[0] if self.sum.exists() else 0) + sum(values)
        self.sum.update((total,))
        return str(total)


def test_fields_that_must_not_be_null_stay_so(spark: SparkSession, tmp_path: Path) -> None:
    job = AdoptedJob(spark, tmp_path, WithoutNulls())
    job.feed([("a", 1)])
    job.on_spark()
    assert job.adopt("--apply", "--force") == 0
    job.feed([("a", 2)])
    job.on_cowstate()
    assert job.shown() == [("a", "1"), ("a", "3")]


class Fleeting(EveryTimedState):
    """A processor whose values live for a second."""

    ttl_ms = 1_000


def test_what_expires_after_the_adoption_is_gone_and_due_timers_fire_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = AdoptedJob(spark, tmp_path, Fleeting(), "ProcessingTime")
    job.feed([("a", 1), ("b", 2)])
    job.on_spark()
    assert job.adopt("--apply", "--force") == 0
    for state in ("total", "last", "kinds"):
        assert open_store(store_of(job), state=state).read().num_rows == 2
    time.sleep(Fleeting.ttl_ms / 1_000)  # the job has already taken longer
    job.feed([("a", 8)])
    job.on_cowstate()
    job.feed([("c", 9)])
    job.on_cowstate()
    alone = json.dumps([8, 8, ["a", "t"], [8], [[2, 1, 8]]])
    assert [seen for key, seen in job.shown() if key == "a" and seen != "fired"][1:] == [alone]
    assert [key for key, seen in job.shown() if seen == "fired"] == ["a", "b"]


class TwoSources(AdoptedJob):
    """A job with rows of the stream and of a second stream, which has a row for each batch."""

    def output(self) -> DataFrame:
        other = Stream(self.spark, self.stream.folder / "other")
        rows = self.stream.source().union(other.source())
        grouped = rows.groupBy("key")
        return grouped.transformWithState(self.processor, SEEN, "update", self.mode)


def test_a_query_of_two_sources_in_a_time_mode_goes_on_from_the_offsets_of_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = TwoSources(spark, tmp_path, EveryTimedState(), "ProcessingTime")
    other = Stream(spark, tmp_path / "other")
    job.feed([("a", 1)])
    other.feed([("o", 2)])
    job.on_spark()
    assert job.adopt("--apply", "--force") == 0
    job.feed([("a", 8)])
    other.feed([("o", 9), ("a", 10)])
    job.on_cowstate()
    totals = [(key, json.loads(text)[0]) for key, text in job.shown() if text != "fired"]
    assert sorted(totals) == [("a", 1), ("a", 19), ("o", 2), ("o", 11)]
    assert [key for key, text in job.shown() if text == "fired"] == ["a", "o"]


class BesideAnother(TwoSources):
    """A job whose operator has a second source behind the sources of its input."""

    def output(self) -> DataFrame:
        other = Stream(self.spark, self.stream.folder / "other")
        grouped = self.stream.source().groupBy("key")
        emitted = grouped.transformWithState(self.processor, SEEN, "update", self.mode)
        return emitted.repartition(1).union(other.source().selectExpr("key", "'other' AS seen"))


def test_a_clock_that_finds_another_source_s_offset_refuses_to_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = BesideAnother(spark, tmp_path, EveryTimedState(), "ProcessingTime")
    other = Stream(spark, tmp_path / "other")
    job.feed([("a", 1)])
    other.feed([("o", 2)])
    job.on_spark()
    before = job.shown()
    before_adoption = contents(job.checkpoint)
    assert job.adopt("--apply", "--force") == 0
    job.feed([("a", 8)])
    with pytest.raises(StreamingQueryException, match="of another source in its place"):
        job.on_cowstate()
    assert job.shown() == before
    assert job.adopt("--revert", "--force") == 0
    # The file source has noted files of the failed batch.
    noted = {name for name in contents(job.checkpoint) if name.startswith("sources/")}
    assert {k: v for k, v in contents(job.checkpoint).items() if k not in noted} == {
        k: v for k, v in before_adoption.items() if k not in noted
    }
