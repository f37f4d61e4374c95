"""Applications on the state store provider are exact, though driver or executors are killed
anytime."""

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
    BACKEND,
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
    ("checkpoint_format", "kills"), [("1", [(3, 0.05), (4, 0.3)]), ("2", [(4, 0.1)])]
)
def test_a_killed_driver_leaves_a_query_that_goes_on(
    spark: SparkSession, tmp_path: Path, checkpoint_format: str, kills: list[tuple[int, float]]
) -> None:
    fed = feed(tmp_path, 6 + 4 * len(kills))
    options = ("--checkpoint-format", checkpoint_format)
    for after_epochs, seconds in kills:
        code = run_and_kill_driver(tmp_path, after_epochs, seconds, *options)
        assert code == -signal.SIGKILL
    run_to_the_end(spark, tmp_path, checkpoint_format)
    assert totals_in(tmp_path) == totals_of(fed)


@pytest.mark.parametrize("backend", ["heap", "disk"])
def test_a_killed_executor_loses_nothing(tmp_path: Path, backend: str) -> None:
    fed = feed(tmp_path, 8)
    options = ("--master", "local-cluster[2,1,1024]", "--conf", f"{BACKEND}={backend}")
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
    assert not [*(tmp_path / "scratch").rglob("cowstate-*.state")], "killed executors left files"


def test_killed_executors_and_gateways_lose_nothing_of_a_state_in_a_store(tmp_path: Path) -> None:
    fed = feed(tmp_path, 10)
    options = ("--master", "local-cluster[2,1,1024]", "--conf", store_in(tmp_path))
    driver = start(MODULE, str(tmp_path), *options, log=tmp_path / "log")
    executors = gateways = 0
    while driver.poll() is None:
        process = psutil.Process(driver.pid)
        if epochs_in(tmp_path) >= 2 * (executors + 1) and executors < 2:
            running = [p for p in family(process) if is_executor(p)]
            kill(running[:1])
            executors += len(running[:1])
        elif epochs_in(tmp_path) >= 2 * gateways + 1 and gateways < 4:
            serving = gateways_below(process)
            kill(serving)
            gateways += len(serving)
        time.sleep(0.05)
    assert driver.returncode == 0
    assert (executors, gateways > 0) == (2, True)
    assert totals_in(tmp_path) == totals_of(fed)
    assert [*tmp_path.glob("store/*/state/0/*/*.arrow")]
    assert not [*tmp_path.glob("checkpoint/state/**/*.arrow")]


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
def test_a_gateway_ends_with_the_driver_or_executor_that_started_it(
    tmp_path: Path, master: str
) -> None:
    feed(tmp_path, 30)
    options = ("--master", master, "--conf", store_in(tmp_path))
    driver = start(MODULE, str(tmp_path), *options, log=tmp_path / "log")
    process = psutil.Process(driver.pid)
    try:
        while not gateways_below(process):
            assert driver.poll() is None
            time.sleep(0.05)
        gateway = gateways_below(process)[0]
        executor = gateway.parent()
        assert executor is not None
        assert is_executor(executor) == ("cluster" in master)
        executor.kill()
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
