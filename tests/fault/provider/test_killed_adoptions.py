"""Killing `cowstate adopt` with its JVM at any moment never harms the checkpoint."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.applications.whole_applications import kill, start
from tests.support.provider.adopted_operators import BATCHES, AdoptedJob, EveryTimedState
from tests.support.provider.adoption_jobs import contents

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
