"""`cowstate adopt` takes over the state of Spark's own transformWithState."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor

from checkpoint_store.state_reader import open_store
from spark_state.errors import ConfigurationError
from tests.support.adopted_operators import (
    AVRO,
    BATCHES,
    UNSAFE_ROWS,
    AdoptedJob,
    EveryState,
    EveryStateOfFrames,
    EveryTimedState,
    StoppedError,
    stop_after,
)
from tests.support.adoption_jobs import contents
from tests.support.provider_jobs import Options

pytestmark = pytest.mark.spark

JOBS: dict[str, tuple[type[StatefulProcessor], str, Options]] = {
    "unsaferow": (EveryState, "None", UNSAFE_ROWS),
    "avro": (EveryState, "None", AVRO),
    "pandas": (EveryStateOfFrames, "None", UNSAFE_ROWS),
    "timed": (EveryTimedState, "ProcessingTime", UNSAFE_ROWS),
    "timed avro": (EveryTimedState, "ProcessingTime", AVRO),
}
Stopped = Callable[[str], AdoptedJob]


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """A job that ran two batches on Spark and is stopped; each test gets copies of it."""

    @cache
    def job(name: str) -> AdoptedJob:
        processor, mode, settings = JOBS[name]
        ran = AdoptedJob(spark, tmp_path_factory.mktemp("stopped"), processor(), mode)
        for rows in BATCHES[:2]:
            ran.feed(rows)
            ran.on_spark(settings)
        return ran

    return job


def store_of(job: AdoptedJob) -> str:
    return f"{job.spark.conf.get('spark.cowstate.store')}/{job.query_id}/operator-0"


def as_text(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in any order; entries of a map in any order."""
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
    assert job.adopt("--apply") == 0
    if base.stream._files == 2:
        base.feed(BATCHES[2])
    expected.on_spark(JOBS[name][2])
    job.on_cowstate()
    assert job.shown() == expected.shown()
    assert len(job.shown()) >= 6
    if base.mode == "None":
        for state in ("total", "last", "kinds"):
            assert rows_of_store(job, state) == rows_of_spark(expected, state)


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
    before = contents(job.checkpoint)
    assert job.adopt() == 0
    text = capsys.readouterr().out
    assert job.adopt("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert contents(job.checkpoint) == before
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
    for word in (store_of(job), "kinds: map, with a time to live", "Nothing was changed"):
        assert word in text


def test_reverting_leaves_every_file_as_it_was_and_no_store(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stopped("timed").copy(tmp_path / "job")
    before = contents(job.checkpoint)
    assert job.adopt("--apply") == 0
    assert "all are as in Spark's store" in capsys.readouterr().out
    assert contents(job.checkpoint) != before
    assert job.adopt() == 2
    assert "is on cowstate already" in capsys.readouterr().err
    assert job.adopt("--revert") == 0
    assert contents(job.checkpoint) == before
    assert contents(Path(store_of(job).removeprefix("file://"))) == {}
    assert job.adopt("--apply", "--force") == 0


def test_after_a_new_batch_reverting_is_refused_and_names_the_way_back(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stopped("unsaferow").copy(tmp_path / "job")
    assert job.adopt("--apply") == 0
    (job.checkpoint / "offsets" / "2").write_text("v1\n{}")
    assert job.adopt("--revert") == 2
    assert "Back to Spark's own operator" in capsys.readouterr().err


def test_an_adoption_that_is_killed_at_any_write_is_undone_and_a_second_one_succeeds(
    stopped: Stopped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stopped("timed").copy(tmp_path / "job")
    before = contents(job.checkpoint)
    for writes in range(100):
        with monkeypatch.context() as patch:
            stop_after(patch, writes)
            try:
                assert job.adopt("--apply", "--force") == 0
                break
            except StoppedError:
                pass
        assert job.adopt("--apply", "--force") == 2
        assert job.adopt("--revert") == 0
        assert contents(job.checkpoint) == before, f"stopped after {writes} writes"
    assert writes >= 5
    assert not (job.checkpoint / "state").exists()
