"""State is exact after kills of state hosts during a snapshot, an upload or a restore of databases.

The query runs in the test's session. So the host of the second slot outlives each kill, and
restores databases in the next run at another parallelism.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.operators.subtasks import stored_totals
from tests.support.processors.processors import KillingAtDatabases
from tests.support.provider.provider_jobs import configured

pytestmark = [pytest.mark.spark, pytest.mark.fault]

OPERATOR = "totals"
KEYS = 60
MOST_RUNS = 40


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [(1, 1), pytest.param(2, 12, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_hosts_killed_at_every_point_of_a_database_lose_nothing(
    spark: SparkSession, tmp_path: Path, seed: int, rounds: int
) -> None:
    chance = random.Random(seed)
    stream = Stream(spark, tmp_path)
    for number in range(rounds):
        kill_at_every_point(stream, tmp_path / f"killed-{number}", chance)
    assert stored_totals(stream.store()) == totals_of(stream.fed)
    assert len([*stream.store().glob("epochs/*/database-*")]) > 1


def kill_at_every_point(stream: Stream, killed: Path, chance: random.Random) -> None:
    """Run the query until a host was killed at each point, and then to the end without kills."""
    killed.mkdir()
    processor = KillingAtDatabases(killed)
    failed = 0
    for run in range(MOST_RUNS):
        is_last = len([*killed.iterdir()]) == len(processor.points)
        for _ in range(3):
            stream.feed(random_rows(chance.random(), count=300, keys=KEYS))
        settings = {
            "spark.cowstate.backend": "rocksdb",
            "spark.cowstate.minEpochsForSnapshot": "1",
            "spark.cowstate.parallelism": str((2, 1, 3)[run % 3]),
        }
        with configured(stream.spark, settings):
            try:
                stream.run(stream.operator(processor, name=OPERATOR))
            except StreamingQueryException as error:
                if "died in epoch" not in str(error):
                    raise
                failed += 1
                continue
        assert stream.totals() == totals_of(stream.fed)
        if is_last:
            break
    assert {path.name for path in killed.iterdir()} == {
        f"{owner}.{method}" for _, owner, method, _ in processor.points
    }
    assert failed
