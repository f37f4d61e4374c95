"""Results are exact after kills of whole applications: driver, JVM, Python processes and state
hosts.

The operator has a broadcast stream, an initial state, timers and entries that expire. Each run
draws a backend for its state.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checkpoint_store import open_store
from tests.support.applications.ledger_job import KINDS, OPERATOR, TIMER_MS, ledger
from tests.support.applications.streams import Row, Stream, random_rows
from tests.support.applications.whole_applications import kill, start
from tests.support.provider.provider_jobs import configured

pytestmark = [pytest.mark.spark, pytest.mark.fault]

FACTORS = {kind: 3 * kind + 1 for kind in range(KINDS)}
INITIAL = {f"key{number}": 10_000 * number for number in range(0, 60, 2)}


def feed(spark: SparkSession, folder: Path, files: int) -> list[Row]:
    """Write payments and rules, each a file an epoch. The rules never change, so a sum does not
    depend on the batch of a rule. The operator counts how often each rule came."""
    payments, rules = Stream(spark, folder), Stream(spark, folder / "rules")
    for number in range(files):
        payments.feed(random_rows(number, count=60, keys=50))
        rules.feed([(str(kind), factor) for kind, factor in FACTORS.items()])
    columns = {"key": [*INITIAL], "total": pa.array(INITIAL.values(), pa.int64())}
    pq.write_table(pa.table(columns), folder / "initial.parquet")
    return payments.fed


def run_and_kill(folder: Path, chance: random.Random) -> int:
    """Run until some more batches are planned, wait, and kill the application."""
    offsets = folder / "checkpoint" / "offsets"
    target = len(list(offsets.glob("[0-9]*"))) + chance.randrange(1, 3)
    # With 1, RocksDB writes a database after almost every epoch.
    backend, epochs = chance.choice([("heap", "3"), ("rocksdb", "3"), ("rocksdb", "1")])
    arguments = (str(chance.randrange(1, 4)), backend, epochs)
    driver = start(
        "tests.support.applications.ledger_job", str(folder), *arguments, log=folder / "log"
    )
    try:
        while driver.poll() is None and len(list(offsets.glob("[0-9]*"))) < target:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1.5))
    finally:
        code = kill(driver)
    assert code in (0, -signal.SIGKILL), (folder / "log").read_text()[-5_000:]
    return code


def run_to_the_end(spark: SparkSession, folder: Path) -> list[dict[str, int]]:
    """Run to the end, and return the last message of each account, after its last timer."""
    audit = Stream(spark, folder)
    with configured(spark, {"spark.cowstate.store": (folder / "store").as_uri()}):
        stream, output = ledger(spark, folder)
        stream.run(output)
        # A last row after all rules.
        audit._files = 10_000
        audit.feed([("audit", 0)])
        stream.run(ledger(spark, folder)[1])
        time.sleep(2 * TIMER_MS / 1_000)
        stream.run(ledger(spark, folder)[1])
    (url,) = folder.glob(f"store/*/{OPERATOR}")
    for state in ("open", "ends", "seen"):
        assert open_store(str(url), state=state).read().num_rows == 0, state
    rows: list[dict[str, int]] = open_store(str(url), state="told").read().to_pylist()
    return rows


def check(told: list[dict[str, int]], fed: list[Row], files: int) -> None:
    rows = Counter(key for key, _ in fed)
    sums = Counter(INITIAL)
    for key, value in fed:
        sums[key] += value * FACTORS[value % KINDS]
    of_key = {str(row["key"]): row for row in told}
    audit = of_key.pop("audit")
    assert audit["rules"] == files * KINDS
    assert {key: row["rows"] for key, row in of_key.items() if row["rows"]} == dict(rows)
    assert {key: row["total"] for key, row in of_key.items()} == dict(sums)
    assert {key: row["begun"] for key, row in of_key.items() if row["begun"]} == dict.fromkeys(
        INITIAL, 1
    )
    for row in of_key.values():
        assert row["registered"] == row["deleted"] + row["fired"]
        assert row["closed"] == row["rows"]
    assert sum(row["fired"] for row in of_key.values()) > 0


@pytest.mark.parametrize(
    ("kills", "files"),
    [
        (2, 6),
        pytest.param(40, 140, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_sums_and_timers_are_exact_after_kills_at_random_moments(
    spark: SparkSession, tmp_path: Path, kills: int, files: int
) -> None:
    chance = random.Random(kills)
    fed = feed(spark, tmp_path, files)
    codes = [run_and_kill(tmp_path, chance) for _ in range(kills)]
    assert -signal.SIGKILL in codes
    check(run_to_the_end(spark, tmp_path), fed, files)
