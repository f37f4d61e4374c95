"""Killing `cowstate adopt` with its JVM at any moment never harms the checkpoint."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cowstate.cli.command_line import main
from tests.support.applications.whole_applications import kill, start
from tests.support.provider.adopted_operators import BATCHES, AdoptedJob, EveryTimedState
from tests.support.provider.adoption_jobs import JOIN, SEGMENTS, Adopted, Seen, contents
from tests.support.provider.provider_jobs import COWSTATE, HDFS, THROUGH_MANAGER

pytestmark = [pytest.mark.spark, pytest.mark.fault]


SOAK = pytest.param(25, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


def adopt_and_kill(checkpoint: Path, seconds: float, log: Path, *options: str) -> int:
    """Run the command, and kill the command `seconds` after its first change."""
    command = ("adopt", str(checkpoint), "--apply", "--force", *options)
    adoption = start("cowstate", *command, log=log)
    try:
        folder = checkpoint / "_cowstate_adopt"
        while adoption.poll() is None and not folder.exists():
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        code = kill(adoption)
    assert code in (0, -signal.SIGKILL), log.read_text()[-5_000:]
    return code


@pytest.mark.parametrize("kills", [2, SOAK])
def test_it_is_undone_and_done_again_and_the_query_goes_on_as_on_spark(
    spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    base = AdoptedJob(spark, tmp_path / "base", EveryTimedState(), "ProcessingTime")
    for rows in BATCHES[:2]:
        base.feed(rows)
        base.on_spark()
    expected, job = base.copy(tmp_path / "spark"), base.copy(tmp_path / "cowstate")
    before = contents(job.checkpoint)
    chance, codes = random.Random(kills), list[int]()
    store = f"spark.cowstate.store={spark.conf.get('spark.cowstate.store')}"
    for kill_number in range(kills):
        # The first kill is immediate, because the duration of the whole command depends on the
        # machine.
        seconds = chance.uniform(0, 6) if kill_number else 0.0
        codes.append(adopt_and_kill(job.checkpoint, seconds, tmp_path / "log", "--conf", store))
        if [*job.checkpoint.glob("_cowstate_adopt/*")]:
            assert job.adopt("--revert", "--force") == 0
        assert contents(job.checkpoint) == before
    assert -signal.SIGKILL in codes
    assert job.adopt("--apply", "--force") == 0
    base.feed(BATCHES[2])
    expected.on_spark()
    job.on_cowstate()
    assert job.shown() == expected.shown()


@pytest.mark.parametrize("kills", [1, SOAK])
def test_a_move_to_a_store_leaves_the_old_state_or_the_new_one(
    spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    expected = Adopted.new(spark, JOIN, HDFS, tmp_path / "spark", THROUGH_MANAGER)
    query = Adopted.new(spark, JOIN, COWSTATE, tmp_path / "cowstate", THROUGH_MANAGER)
    for job in (expected, query):
        job.go_on(SEGMENTS[0])
    store, before = tmp_path / "store", contents(query.checkpoint)
    chance, codes = random.Random(kills), list[int]()
    for kill_number in range(kills):
        seconds = chance.uniform(0, 6) if kill_number else 0.0
        codes.append(
            adopt_and_kill(query.checkpoint, seconds, tmp_path / "log", "--store", store.as_uri())
        )
        if [*query.checkpoint.glob("_cowstate_adopt/*")]:
            assert main(["adopt", str(query.checkpoint), "--revert", "--force"]) == 0
        assert contents(query.checkpoint) == before
        assert not [*store.rglob("*.arrow")]
    assert -signal.SIGKILL in codes
    query.adopt("--store", store.as_uri())
    for job in (expected, query):
        job.go_on(SEGMENTS[1])
    assert Seen.of(query.run) == Seen.of(expected.run)
    assert [*store.rglob("*.arrow")]
