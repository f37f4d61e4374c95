"""`cowstate adopt` in a process of its own, killed with its JVM at any moment."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.adopted_operators import BATCHES, AdoptedJob, EveryTimedState
from tests.support.adoption_jobs import contents
from tests.support.whole_applications import kill, start

pytestmark = [pytest.mark.spark, pytest.mark.fault]


def adopt_and_kill(job: AdoptedJob, seconds: float, log: Path) -> int:
    """Run the command, and kill it `seconds` after it has begun to change something."""
    store = f"spark.cowstate.store={job.spark.conf.get('spark.cowstate.store')}"
    command = ("adopt", str(job.checkpoint), "--apply", "--force", "--conf", store)
    adoption = start("cowstate", *command, log=log)
    try:
        folder = job.checkpoint / "_cowstate_adopt"
        while adoption.poll() is None and not folder.exists():
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        code = kill(adoption)
    assert code in (0, -signal.SIGKILL), log.read_text()[-5_000:]
    return code


@pytest.mark.parametrize(
    "kills", [2, pytest.param(25, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
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
    for kill_number in range(kills):
        # The first is killed at once: how long the whole command takes is the machine's affair.
        seconds = chance.uniform(0, 6) if kill_number else 0.0
        codes.append(adopt_and_kill(job, seconds, tmp_path / "log"))
        if (job.checkpoint / "_cowstate_adopt").exists():
            assert job.adopt("--revert") == 0
        assert contents(job.checkpoint) == before
    assert -signal.SIGKILL in codes
    assert job.adopt("--apply", "--force") == 0
    base.feed(BATCHES[2])
    expected.on_spark()
    job.on_cowstate()
    assert job.shown() == expected.shown()
