"""Results are exact after random kills of executors, gateways and drivers.

The state is in mapped files and in a store. A kill of a driver spares its executors. The executors
and their gateways have to end by themselves, while the next driver already starts.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.provider_checkpoint import committed_batches, read_state
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
from tests.support.applications.streams import Row, Totals, totals_in, totals_of
from tests.support.applications.whole_applications import start
from tests.support.eventually import eventually
from tests.support.stores.misbehaving_gateway import gateways_below

pytestmark = [pytest.mark.spark, pytest.mark.fault]
KINDS = ("executor", "gateway", "driver")
EPOCHS = 6
# With Spark's four attempts, the fourth executor that is killed in a batch ends the query.
OPTIONS = [
    *("--master", "local-cluster[2,1,1024]", "--conf", f"{BACKEND}=disk"),
    *("--conf", "spark.task.maxFailures=100", "--conf", "spark.stage.maxConsecutiveAttempts=100"),
]
SOAK = [pytest.mark.soak, pytest.mark.timeout(7200)]
ROUNDS = [(3, "1"), pytest.param(50, "1", marks=SOAK), pytest.param(50, "2", marks=SOAK)]


def victims(chance: random.Random, rounds: int) -> list[str]:
    """The kinds of processes to kill, about equally often, in random order."""
    kinds = list(islice(cycle(KINDS), rounds))
    chance.shuffle(kinds)
    return kinds


def is_driver(process: psutil.Process) -> bool:
    """Return True if the process is the JVM or the Python of a driver."""
    with suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        return MODULE in words or "org.apache.spark.deploy.SparkSubmit" in words
    return False


def has_mapped_state(process: psutil.Process) -> bool:
    with suppress(OSError):
        return "/cowstate-" in Path(f"/proc/{process.pid}/maps").read_text()
    return False


class Query:
    """A query over all input fed before a driver's start; drivers run the query in turn."""

    def __init__(self, folder: Path, checkpoint_format: str) -> None:
        self.folder = folder
        self.fed: list[Row] = []
        self.has_mapped_state = False
        self.processes: set[psutil.Process] = set()
        self._options = [*OPTIONS, "--conf", store_in(folder)]
        self._options += ["--checkpoint-format", checkpoint_format]
        self._fed_epochs = 0
        self._start()

    def _start(self) -> None:
        """Start a driver, after feeding more input if little is left."""
        missing = epochs_in(self.folder) + EPOCHS - self._fed_epochs
        self.fed += feed(self.folder, max(missing, 0), first=self._fed_epochs)
        self._fed_epochs += max(missing, 0)
        log = self.folder / "drivers.log"
        self._driver = start(MODULE, str(self.folder), *self._options, log=log)

    def running(self, kind: str) -> list[psutil.Process]:
        """The query's processes of a kind. Another driver starts if the current driver has
        ended."""
        if self._driver.poll() is not None:
            self._assert_ended_well()
            self._start()
        processes = family(psutil.Process(self._driver.pid))
        self.processes.update(processes)
        executors = [process for process in processes if is_executor(process)]
        self.has_mapped_state |= any(has_mapped_state(executor) for executor in executors)
        match kind:
            case "executor":
                return executors
            case "gateway":
                return gateways_below(processes[0]) if processes else []
        return [process for process in processes if is_driver(process)]

    def kill_some(self, kind: str, chance: random.Random) -> None:
        """Kill a process of a kind, a random time after a random number of epochs."""
        target = epochs_in(self.folder) + chance.randrange(3)
        wait_seconds = chance.uniform(0, 1.5)
        while epochs_in(self.folder) < target:
            self.running(kind)
            time.sleep(0.05)
        time.sleep(wait_seconds)
        while not (candidates := self.running(kind)):
            time.sleep(0.05)
        if kind == "driver":
            self._kill_driver(candidates)
        else:
            kill([chance.choice(candidates)])

    def _kill_driver(self, processes: list[psutil.Process]) -> None:
        """Kill the driver without its executors."""
        kill(processes)
        assert self._driver.wait() in (-signal.SIGKILL, 0)
        self._start()

    def run_to_the_end(self) -> None:
        self._driver.wait()
        self._assert_ended_well()

    def _assert_ended_well(self) -> None:
        log = (self.folder / "drivers.log").read_text()
        assert self._driver.returncode == 0, log[-5000:]

    def end(self) -> None:
        """Kill all processes, whatever happened before."""
        kill([process for process in self.processes if not has_ended(process)])
        self._driver.kill()
        self._driver.wait()


@contextmanager
def query_in(folder: Path, checkpoint_format: str) -> Iterator[Query]:
    query = Query(folder, checkpoint_format)
    try:
        yield query
    finally:
        query.end()


def state_in(folder: Path) -> Totals:
    """The state in the store after the last batch."""
    checkpoint = open_object_store(str(folder / "checkpoint"))
    state = read_state(checkpoint, committed_batches(checkpoint)[-1])
    return {row["key"]["key"]: (*row["value"].values(),) for row in state.to_pylist()}


@pytest.mark.parametrize(("rounds", "checkpoint_format"), ROUNDS)
def test_random_kills_of_executors_gateways_and_drivers_lose_nothing_and_leave_nothing(
    tmp_path: Path, rounds: int, checkpoint_format: str
) -> None:
    chance = random.Random(rounds)
    with query_in(tmp_path, checkpoint_format) as query:
        for kind in victims(chance, rounds):
            query.kill_some(kind, chance)
        query.run_to_the_end()
        eventually(lambda: all(has_ended(process) for process in query.processes))
    assert totals_in(tmp_path) == state_in(tmp_path) == totals_of(query.fed)
    assert query.has_mapped_state
    assert not [*(tmp_path / "scratch").rglob("cowstate-*.state")]
    assert [*tmp_path.glob("store/*/state/0/*/*.arrow")]
    assert not [*tmp_path.glob("checkpoint/state/**/*.arrow")]
