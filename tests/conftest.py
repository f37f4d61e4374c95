"""Fixtures and hooks of all tests: one Spark session, one Hypothesis profile, no leaks."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from spark_state.executor import Executor
from spark_state.subtasks.maintenance import Maintenance
from tests.support.backend_of_file import backends_of, only_backend
from tests.support.leaks import Leftovers, await_leftovers, in_use
from tests.support.operators.executors import stand_in_executor
from tests.support.provider.provider_jobs import configured
from tests.support.provider.provider_jvm import local_directory, provider_jvm, tasks
from tests.support.sessions.java_options import set_java_options
from tests.support.sessions.python_path import import_installed_pyspark
from tests.support.sessions.spark_session import start_spark, stop_spark
from tests.support.stores.same_thread import requests_in_same_thread

__all__ = ["local_directory", "provider_jvm", "tasks"]

settings.register_profile("developer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("developer"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "developer")

# Workers, hosts and subprocesses must run the interpreter that runs the tests.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
set_java_options()
import_installed_pyspark()

# Processes of a test run put temporary files, above all the sockets of state hosts, into a folder
# of the run, or of the xdist worker. The folder's path is short, because the path of a socket has
# at most 107 bytes. pytest keeps its own files outside this folder.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
SCRATCH = tempfile.mkdtemp(prefix="cst-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"])
os.environ["TMPDIR"] = tempfile.tempdir = SCRATCH
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)


# Whole applications run longest. An application that begins last leaves the other worker idle.
FOLDERS = ("notebooks", "fault", "spark", "property")
WORTH_A_SUMMARY = 60.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the operators of a test file on the backends that backend_of_file chooses for the
    file."""
    if "backend" in metafunc.fixturenames:
        backends = backends_of(Path(metafunc.module.__file__), only_backend())
        if backends:
            metafunc.parametrize("backend", backends, indirect=True, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort long files to the front and keep the order within a folder. A run for only one backend
    deselects the tests without a backend."""
    if only_backend() is not None:
        others = [item for item in items if "backend" not in _parameters_of(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)

    items.sort(key=place)


def _parameters_of(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of a long run by folder, summed over all workers."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = Path(report.nodeid.partition("::")[0])
                seconds["/".join(file.parent.parts[:2])] += report.duration
    if sum(seconds.values()) >= WORTH_A_SUMMARY:
        terminalreporter.section("seconds by folder")
        for folder, taken in seconds.most_common():
            terminalreporter.line(f"{taken:8.1f}  {folder}")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail the run if a thread, file, socket, child process or state host outlives the tests."""
    before = in_use()
    yield
    left = await_leftovers(before, patience_seconds=15.0)
    assert left == Leftovers(), f"left behind by the tests: {left}"


@pytest.fixture
def executor() -> Iterator[Executor]:
    """A process that stands for an executor."""
    with stand_in_executor() as running:
        yield running


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest) -> str | None:
    """The backend of the operators of a test file. None if the file chooses backends itself, or has
    no operators. See backend_of_file."""
    chosen: str | None = getattr(request, "param", None)
    return chosen


@pytest.fixture(scope="module")
def spark(shared_session: SparkSession, backend: str | None) -> Iterator[SparkSession]:
    """The session of all tests of the run. The operators run on the backend of the test file."""
    if backend is None:
        yield shared_session
        return
    with configured(shared_session, {"spark.cowstate.backend": backend}):
        yield shared_session


@pytest.fixture(scope="session")
def shared_session(
    nothing_is_left_behind: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A local[2] session. The files of the session are in pytest's folder."""
    folder: Path = tmp_path_factory.mktemp("spark")
    session = start_spark("local[2]", folder)
    yield session
    stop_spark(session)


def return_at_once(_: int) -> None:
    """Replace os.fsync by a call that does nothing."""


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_a_disk() -> Iterator[None]:
    """Replace os.fsync in the test process: no test cuts the power, so files need not reach the
    disk. Tests of syncs see the calls. Processes that tests start do sync."""
    with mock.patch("os.fsync", return_at_once):
        yield


@pytest.fixture
def maintenance() -> Iterator[Maintenance]:
    """The threads that write snapshots and keep house for the state hosts of a test."""
    with Maintenance() as threads:
        yield threads


@pytest.fixture(scope="module")
def without_threads() -> Iterator[None]:
    """Run store requests without threads, for test modules whose stores are in memory."""
    with requests_in_same_thread():
        yield
