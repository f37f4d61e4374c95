"""Queries whose checkpoint changes to another provider, and test helpers for checkpoints."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cowstate.cli.command_line import main
from spark_state.spark.provider.provider_class import PROVIDER_KEY
from tests.support.applications.lost_commits import delete
from tests.support.provider.operator_jobs import distinct_marked, marked
from tests.support.provider.provider_inputs import EventShape, write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    STATE_STORE,
    THROUGH_MANAGER,
    Batches,
    Job,
    Options,
    ProviderRun,
    configured,
    maintenance_of,
)

SNAPSHOTS = {
    **THROUGH_MANAGER,
    f"{STATE_STORE}.minDeltasForSnapshot": "1",
    f"{STATE_STORE}.maintenanceInterval": "50ms",
}
CHANGELOG = {
    **THROUGH_MANAGER,
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
ROW_CHECKSUMS = {
    **THROUGH_MANAGER,
    f"{STATE_STORE}.rowChecksum.enabled": "true",
    f"{STATE_STORE}.rowChecksum.readVerificationRatio": "1",
}
FORMAT_2 = {**THROUGH_MANAGER, f"{STATE_STORE}.checkpointFormatVersion": "2"}
AGGREGATION = "aggregation with eviction"
JOIN = "stream-stream join"
SHAPE = EventShape(rows=60, keys=20)
SEGMENTS = (2, 1, 1, 1)
"""The number of input batches of each run of a query."""


def windows(events: DataFrame, _: DataFrame) -> DataFrame:
    groups = marked(events).groupBy(F.window("moment", "40 seconds"), "key")
    return groups.agg(F.count("*").alias("events"), F.max("text").alias("longest"))


def sessions(events: DataFrame, _: DataFrame) -> DataFrame:
    groups = marked(events).groupBy(F.session_window("moment", "25 seconds"), "key")
    return groups.agg(F.count("*").alias("events"), F.max("text").alias("longest"))


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    condition = (
        "l.key = r.key AND r.moment BETWEEN l.moment - INTERVAL 20 SECONDS "
        "AND l.moment + INTERVAL 30 SECONDS"
    )
    return marked(left).alias("l").join(marked(right).alias("r"), F.expr(condition), "left_outer")


def total(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.agg(F.count("*").alias("events"), F.sum("amount").alias("amount"))


NO_EMPTY_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
SIDES = ({"joinSide": "left"}, {"joinSide": "right"})
JOBS = {
    "aggregation with eviction": Job(windows),
    "dropDuplicates": Job(distinct_marked, settings=NO_EMPTY_BATCHES),
    "session windows": Job(sessions, settings=NO_EMPTY_BATCHES),
    "stream-stream join": Job(joined, stores=SIDES, settings=NO_EMPTY_BATCHES),
    "aggregation without a key": Job(total, "update"),
}
"""Only the aggregation with eviction runs batches without data."""


@dataclass
class Segments:
    """The input of a job, divided over the job's runs."""

    left: list[Path]
    right: list[Path]
    done: int = 0

    @classmethod
    def random(cls, folder: Path, seed: int) -> Segments:
        count = sum(SEGMENTS)
        return cls(
            write_batches(folder / "left", seed, count, SHAPE),
            write_batches(folder / "right", seed + 100, count, SHAPE),
        )

    def run(self, run: ProviderRun, batches: int) -> None:
        """Let a query process `batches` more batches, and stop the query."""
        part = slice(self.done, self.done + batches)
        self.done += batches
        run.run(self.left[part], self.right[part])


class Seen(NamedTuple):
    """The output of each batch's last attempt, and the state after each of the last two batches."""

    outputs: dict[int, list[str]]
    states: Batches

    @classmethod
    def of(cls, run: ProviderRun) -> Seen:
        outputs = {batch: attempts[-1] for batch, attempts in run.outputs.items()}
        with configured(run.spark, run.settings):
            return cls(outputs, run.states(run.batches[-2:]))


def provider_of_last_batch(checkpoint: Path) -> str:
    newest = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    text = (checkpoint / "offsets" / str(newest)).read_text()
    provider: str = json.loads(text.split("\n")[1])["conf"][PROVIDER_KEY]
    return provider


def rewrite(file: Path, change: Callable[[str], str]) -> None:
    before = file.read_text()
    after = change(before)
    assert after != before
    delete(file)
    file.write_text(after)


def set_in_log(file: Path, key: str, value: Any) -> None:
    """Set a configuration key in an entry of the offset log."""

    def change(text: str) -> str:
        lines = text.split("\n")
        content = json.loads(lines[1])
        content["conf"][key] = value
        return "\n".join([lines[0], json.dumps(content), *lines[2:]])

    rewrite(file, change)


def damage(file: Path) -> None:
    """Change a byte in the middle of a file, and delete the Hadoop checksum, so that Hadoop sees no
    damage."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    delete(file)
    file.write_bytes(data)


def copied(checkpoint: Path, target: Path) -> Path:
    """A copy of a checkpoint whose files look five minutes old."""
    shutil.copytree(checkpoint, target)
    then = time.time() - 300
    for file in target.rglob("*"):
        os.utime(file, (then, then))
    return target


def contents(folder: Path, without: Sequence[str] = ()) -> dict[str, bytes]:
    """The content of all files below a folder, except files whose name ends in one of `without`."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(tuple(without) or ("\0",))
    }


@dataclass
class Adopted:
    """A job that starts on one provider, and the adopt command on the job's checkpoint."""

    run: ProviderRun
    segments: Segments

    @classmethod
    def new(
        cls, spark: SparkSession, name: str, provider: str, folder: Path, settings: Options
    ) -> Adopted:
        """A job that has not run yet."""
        run = ProviderRun(spark, JOBS[name], provider, folder / "run", settings)
        return cls(run, Segments.random(folder, seed=1))

    @property
    def checkpoint(self) -> Path:
        return self.run.checkpoint

    def copy(self, folder: Path) -> Adopted:
        """The same job in another folder, with a copy of the checkpoint. The copy reads the files
        in its own folder."""
        outputs = defaultdict(list, {batch: [*rows] for batch, rows in self.run.outputs.items()})
        run = replace(self.run, folder=folder / "run", outputs=outputs)
        shutil.copytree(self.run.folder, run.folder)
        for log in run.checkpoint.glob("sources/*/[0-9]*"):
            rewrite(log, lambda text: text.replace(str(self.run.folder), str(run.folder)))
        return Adopted(run, replace(self.segments))

    def go_on(self, batches: int) -> None:
        self.segments.run(self.run, batches)
        assert provider_of_last_batch(self.checkpoint) == self.run.provider

    def adopt(self, *arguments: str) -> None:
        assert main(["adopt", str(self.checkpoint), "--apply", "--force", *arguments]) == 0
        self.run.provider = HDFS if "hdfs" in arguments else COWSTATE


class FirstSegments:
    """Jobs that have processed the first segment. Each job runs once, and tests continue from
    copies."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._done: dict[tuple[str, str, str], Adopted] = {}

    def copy(self, name: str, provider: str, folder: Path, settings: Options) -> Adopted:
        """A copy of a job in `folder`. If the settings ask for snapshots, every batch has a
        snapshot."""
        job = name, provider, json.dumps(settings, sort_keys=True)
        if job not in self._done:
            place = self._folder / str(len(self._done))
            query = Adopted.new(self._spark, name, provider, place, settings)
            with maintenance_of(self._spark) if settings == SNAPSHOTS else nullcontext():
                query.go_on(SEGMENTS[0])
            self._done[job] = query
        return self._done[job].copy(folder)


def refused(
    checkpoint: Path, message: str, capsys: pytest.CaptureFixture[str], *arguments: str
) -> None:
    """Check that the command fails with a message, with and without --apply, and changes
    nothing."""
    before = contents(checkpoint)
    for apply in ([], ["--apply", "--force"]):
        assert main(["adopt", str(checkpoint), *apply, *arguments]) == 2
        error = capsys.readouterr().err
        assert re.search(message, error), error
    assert contents(checkpoint) == before


Uninterrupted = Callable[[str], Seen]


@pytest.fixture(scope="module")
def uninterrupted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """Outputs and states by batch of a job that stays on HDFSBackedStateStoreProvider."""

    @cache
    def run(name: str) -> Seen:
        folder = tmp_path_factory.mktemp("uninterrupted")
        query = ProviderRun(spark, JOBS[name], HDFS, folder / "run", THROUGH_MANAGER)
        segments = Segments.random(folder, seed=1)
        for batches in SEGMENTS:
            segments.run(query, batches)
        return Seen.of(query)

    return run


@pytest.fixture(scope="module")
def first_segments(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FirstSegments:
    return FirstSegments(spark, tmp_path_factory.mktemp("first-segments"))
