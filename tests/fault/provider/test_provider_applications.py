"""Applications on the state store provider are exact, though driver or executors are killed
anytime.

test_random_kills_of_applications kills executors, gateways and drivers of one query, with its state
on disk and in a store.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.support.applications.provider_application import STATE_STORE, totals
from tests.support.applications.provider_drivers import (
    MODULE,
    epochs_in,
    family,
    feed,
    has_ended,
    is_executor,
    kill,
    store_in,
)
from tests.support.applications.streams import Stream, totals_in, totals_of
from tests.support.applications.whole_applications import kill as kill_application
from tests.support.applications.whole_applications import start
from tests.support.eventually import eventually
from tests.support.provider.provider_jobs import configured
from tests.support.stores.misbehaving_gateway import gateways_below

pytestmark = [pytest.mark.spark, pytest.mark.fault]


def run_to_the_end(spark: SparkSession, folder: Path, checkpoint_format: str = "1") -> None:
    """Run to the end in the session of the tests, with the provider that the checkpoint names.
    Spark 4.2 does not note the format in a checkpoint, so the session names the format again."""
    stream = Stream(spark, folder, settings={})
    with configured(spark, {f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format}):
        stream.run(totals(stream))


def run_and_kill_driver(folder: Path, after_epochs: int, seconds: float, *arguments: str) -> int:
    """Run until the sink has so many more epochs, wait, and kill the whole application.

    Return the driver's exit code: 0 if the driver was faster.
    """
    driver = start(MODULE, str(folder), *arguments, log=folder / "log")
    target = epochs_in(folder) + after_epochs
    while driver.poll() is None and epochs_in(folder) < target:
        time.sleep(0.05)
    time.sleep(seconds)
    return kill_application(driver)


@pytest.mark.parametrize(
    ("checkpoint_format", "after_epochs", "seconds"), [("1", 3, 0.05), ("2", 4, 0.3)]
)
def test_a_killed_driver_leaves_a_query_that_goes_on(
    spark: SparkSession, tmp_path: Path, checkpoint_format: str, after_epochs: int, seconds: float
) -> None:
    fed = feed(tmp_path, 10)
    options = ("--checkpoint-format", checkpoint_format)
    assert run_and_kill_driver(tmp_path, after_epochs, seconds, *options) == -signal.SIGKILL
    run_to_the_end(spark, tmp_path, checkpoint_format)
    assert totals_in(tmp_path) == totals_of(fed)


def test_a_killed_executor_loses_nothing_of_a_state_in_the_checkpoint(tmp_path: Path) -> None:
    fed = feed(tmp_path, 8)
    options = ("--master", "local-cluster[2,1,1024]")
    driver = start(MODULE, str(tmp_path), *options, log=tmp_path / "log")
    killed = 0
    while driver.poll() is None:
        if epochs_in(tmp_path) >= 2 * (killed + 1) and killed < 2:
            executors = [p for p in family(psutil.Process(driver.pid)) if is_executor(p)]
            kill(executors[:1])
            killed += len(executors[:1])
        time.sleep(0.05)
    assert driver.returncode == 0
    assert killed == 2
    assert totals_in(tmp_path) == totals_of(fed)


def test_a_gateway_ends_with_the_driver_that_started_it(tmp_path: Path) -> None:
    feed(tmp_path, 30)
    driver = start(MODULE, str(tmp_path), "--conf", store_in(tmp_path), log=tmp_path / "log")
    process = psutil.Process(driver.pid)
    try:
        while not gateways_below(process):
            assert driver.poll() is None
            time.sleep(0.05)
        gateway = gateways_below(process)[0]
        jvm = gateway.parent()
        assert jvm is not None
        jvm.kill()
        eventually(lambda: has_ended(gateway))
    finally:
        kill_application(driver)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_stored", [False, True])
def test_fifty_kills_at_random_moments_keep_the_sums(
    spark: SparkSession, tmp_path: Path, is_stored: bool
) -> None:
    chance = random.Random(50)
    fed = feed(tmp_path, 160)
    options = ("--conf", store_in(tmp_path)) if is_stored else ()
    for _ in range(50):
        run_and_kill_driver(tmp_path, chance.randrange(4), chance.uniform(0, 1.5), *options)
    run_to_the_end(spark, tmp_path)
    assert totals_in(tmp_path) == totals_of(fed)
