"""A query survives gateways that are killed, cannot start, or have a misbehaving store."""

from __future__ import annotations

import random
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.eventually import eventually
from tests.support.provider.adoption_jobs import SNAPSHOTS
from tests.support.provider.provider_jobs import THROUGH_MANAGER, maintenance_of
from tests.support.provider.provider_jvm import START, ProviderJvm, Script, WordValue, shown
from tests.support.provider.provider_stores import StorePlace, directory_store
from tests.support.provider.state_directories import Directory
from tests.support.stores.misbehaving_gateway import (
    ROOT,
    end_gateways,
    gateways_below,
    misbehaving_python,
)

pytestmark = [pytest.mark.spark, pytest.mark.fault]

ROUNDS = [3, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]


def directory_at(jvm: ProviderJvm, root: Path, **seconds: int) -> Directory:
    return Directory(jvm, "gateway", root.as_uri(), **seconds)


@pytest.fixture
def directory(provider_jvm: ProviderJvm, tmp_path: Path) -> Directory:
    return directory_at(provider_jvm, tmp_path / "store")


@contextmanager
def python_of_executors(directory: Directory, python: Path | str) -> Iterator[None]:
    """Start gateways with another interpreter inside the `with` block."""
    end_gateways()
    directory.run(f"python {python}")
    try:
        yield
    finally:
        directory.run("python")
        end_gateways()


def python_without(folder: Path, package: str) -> Path:
    """Build a Python with cowstate and all packages but one."""
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name != package:
            (packages / entry.name).symlink_to(entry)
    python = folder / f"python-without-{package}"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={ROOT}:{packages}\nexec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return python


@contextmanager
def kills(chance: random.Random, most_seconds: float) -> Iterator[list[int]]:
    """Kill any running gateway again and again inside the `with` block; yield the pids killed so
    far."""
    killed: list[int] = []
    ended = threading.Event()

    def kill_often() -> None:
        while not ended.wait(chance.uniform(0, most_seconds)):
            for gateway in gateways_below(psutil.Process()):
                with suppress(psutil.NoSuchProcess):
                    gateway.kill()
                    killed.append(gateway.pid)

    killer = threading.Thread(target=kill_often)
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()


class TestAKilledGateway:
    def test_the_next_request_starts_another_one(self, directory: Directory) -> None:
        directory.run("put a.arrow 100")
        first = directory.result("gateway-pid")
        end_gateways()
        assert directory.run("whole a.arrow 100", "put b.arrow 100", "list") == [
            *("true", "", "a.arrow b.arrow")
        ]
        assert directory.result("gateway-pid") not in (first, "none")

    def test_requests_that_were_under_way_are_made_again(self, directory: Directory) -> None:
        directory.run("put a.arrow 9000000")
        with kills(random.Random(7), most_seconds=2.0) as killed:
            for turn in range(6):
                result = directory.run(
                    f"put large-{turn}.arrow 9000000",
                    f"whole large-{turn}.arrow 9000000",
                    "put-at-once 16 300000",
                    *(f"delete file-{number}" for number in range(16)),
                    "whole a.arrow 9000000",
                )
                assert result == ["", "true", "16", *[""] * 16, "true"]
        assert killed

    def test_an_interrupted_request_is_not_made_again(
        self, directory: Directory, tmp_path: Path
    ) -> None:
        """The gateway already runs, so the interrupt meets the put, and the put is retried for
        long."""
        python = misbehaving_python(tmp_path, seed=1, refused=".arrow")
        with python_of_executors(directory, python):
            assert directory.result("list") == ""
            result = directory.result("interrupted-put a.arrow 2000")
        assert result == "ClosedByInterruptException"
        assert directory.result("list") == ""


SILENT = """
import socket, sys, tempfile
path = tempfile.mkdtemp() + "/socket"
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    listener.listen()
    print(path, flush=True)
    sys.stdin.read()
"""
# The system queues this many connections that nobody accepts; the next connection waits.
FULL = """
import socket, sys, tempfile
path = tempfile.mkdtemp() + "/socket"
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    listener.listen(0)
    waiting = []
    try:
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect(path)
    except BlockingIOError:
        print(path, flush=True)
    sys.stdin.read()
"""


def python_that_runs(folder: Path, program: str) -> Path:
    """Build a fake Python for executors, which runs another program."""
    (folder / "program.py").write_text(program)
    python = folder / "other-python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {folder}/program.py\n")
    python.chmod(0o755)
    return python


class TestAGatewayThatLivesAndDoesNotAnswer:
    def test_one_that_is_stopped_is_ended_and_its_request_is_made_by_another_one(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        directory = directory_at(provider_jvm, tmp_path / "store", silent_seconds=3)
        directory.run("put a.arrow 100")
        first = int(directory.result("gateway-pid"))
        psutil.Process(first).suspend()
        try:
            assert directory.run("put b.arrow 100", "list") == ["", "a.arrow b.arrow"]
        finally:
            end_gateways()
        assert not psutil.pid_exists(first)

    @pytest.mark.parametrize(
        ("program", "told"),
        [(SILENT, "did not answer for 1 s,"), (FULL, "took no connection (within 1 s),")],
        ids=["silent", "without a connection"],
    )
    def test_those_that_keep_silent_fail_the_request_in_the_end(
        self, provider_jvm: ProviderJvm, tmp_path: Path, program: str, told: str
    ) -> None:
        directory = directory_at(
            provider_jvm, tmp_path / "store", retry_seconds=1, silent_seconds=1
        )
        with python_of_executors(directory, python_that_runs(tmp_path, program)):
            result = directory.result("put a.arrow 10")
        assert result.startswith("error ObjectStoreException the gateway to the object store ")
        assert "could not be asked 2 times in" in result
        assert f"{told} and was ended" in result
        assert "memoryOverhead" not in result
        assert directory.result("list") == ""

    def test_one_that_answers_others_is_spared_by_a_request_without_an_answer(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        held = tmp_path / "held"
        held.touch()
        python = misbehaving_python(tmp_path, seed=1, held=str(held), holding="held.arrow")
        others = directory_at(provider_jvm, tmp_path / "others")
        silent = directory_at(provider_jvm, tmp_path / "silent", retry_seconds=1, silent_seconds=5)
        results: list[str] = []
        asking = threading.Thread(target=lambda: results.append(silent.result("put held.arrow 9")))
        with python_of_executors(others, python):
            others.run("put a.arrow 10")
            first = others.result("gateway-pid")
            asking.start()
            while asking.is_alive():
                assert others.run("whole a.arrow 10", "gateway-pid") == ["true", first]
            asking.join()
        (result,) = results
        assert "could not be asked 2 times in" in result
        assert "did not answer for 5 s, and answered others" in result

    def test_one_whose_socket_is_gone_is_ended_and_another_one_is_asked(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        directory = directory_at(provider_jvm, tmp_path / "store", retry_seconds=5)
        directory.run("put a.arrow 100")
        first = int(directory.result("gateway-pid"))
        listening = psutil.Process(first).net_connections("unix")
        (socket,) = {Path(each.laddr) for each in listening if each.laddr}
        socket.unlink()
        assert directory.result("put-at-once 8 100") == "8"
        assert directory.result("gateway-pid") not in (str(first), "none")

    def test_one_that_moves_many_bytes_is_waited_for(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        directory = directory_at(provider_jvm, tmp_path / "store", silent_seconds=2)
        directory.run("put a.arrow 100")
        first = int(directory.result("gateway-pid"))
        gateway = psutil.Process(first)
        gateway.suspend()
        resumption = threading.Timer(6.0, gateway.resume)
        resumption.start()
        assert directory.run("put b.arrow 9000000", "gateway-pid") == ["", str(first)]
        resumption.join()


class TestAGatewayThatCannotStart:
    def test_an_interpreter_that_is_not_there_is_named(
        self, directory: Directory, tmp_path: Path
    ) -> None:
        with python_of_executors(directory, tmp_path / "nothing"):
            result = directory.result("put a.arrow 10")
        assert result.startswith("error GatewayStartException")
        assert f'Cannot run program "{tmp_path}/nothing"' in result
        assert "name another interpreter with spark.pyspark.python or PYSPARK_PYTHON" in result
        assert directory.result("put a.arrow 10") == ""

    def test_an_interpreter_without_cowstate_is_named_with_what_to_install(
        self, directory: Directory, tmp_path: Path
    ) -> None:
        python = tmp_path / "bare-python"
        python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        with python_of_executors(directory, python):
            result = directory.result("put a.arrow 10")
        assert f"{python} ended with exit code 1" in result
        assert "No module named 'spark_state'" in result
        assert f"({python} -m pip install cowstate, with the extra s3 for S3)" in result

    def test_a_client_that_is_not_installed_is_named(self, provider_jvm: ProviderJvm) -> None:
        result = Directory(provider_jvm, "gateway", "gs://bucket/state").result("put a.arrow 10")
        assert "cannot use the store gs://bucket/state: " in result
        assert f"The gateway runs in {sys.executable}" in result

    def test_a_query_tells_of_a_fsspec_that_is_not_installed(
        self, spark: SparkSession, directory: Directory, tmp_path: Path
    ) -> None:
        python = python_without(tmp_path, "fsspec")
        settings = {PROVIDER_KEY: PROVIDER_CLASS, **THROUGH_MANAGER}
        stream = Stream(spark, tmp_path, {**settings, **StorePlace("s3://bucket").settings})
        stream.feed(random_rows(1, count=10, keys=5))
        with (
            python_of_executors(directory, python),
            pytest.raises(StreamingQueryException) as raised,
        ):
            stream.run(totals(stream))
        told = str(raised.value)
        assert "cannot use the store s3://bucket/" in told
        assert f": No module named 'fsspec': {sys.executable} -m pip install s3fs. " in told
        assert f"The gateway runs in {python}" in told

    def test_one_that_dies_again_and_again_fails_the_request_in_the_end(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        directory = directory_at(provider_jvm, tmp_path / "store", retry_seconds=2)
        python = tmp_path / "dying-python"
        python.write_text("#!/bin/sh\nkill -9 $$\n")
        python.chmod(0o755)
        with python_of_executors(directory, python):
            result = directory.result("put a.arrow 10")
        assert result.startswith("error ObjectStoreException the gateway to the object store died ")
        assert "raise spark.executor.memoryOverhead" in result


class TestAStoreThatMisbehaves:
    @pytest.mark.parametrize(
        "chances",
        [{"failing": 0.2}, {"slow": 0.5, "truncating": 0.3}, {"failing": 0.1, "truncating": 0.1}],
    )
    def test_what_is_written_is_read(
        self, directory: Directory, tmp_path: Path, chances: dict[str, float]
    ) -> None:
        """Calls fail before or after their effect, are slow, or return a part of an object."""
        with python_of_executors(directory, misbehaving_python(tmp_path, 5, **chances)):
            for turn in range(4):
                result = directory.run(
                    f"put {turn}.arrow 1500000", f"whole {turn}.arrow 1500000", "put-at-once 8 999"
                )
                assert result == ["", "true", "8"]
                directory.run(*(f"delete file-{number}" for number in range(8)))
        assert directory.result("list") == "0.arrow 1.arrow 2.arrow 3.arrow"

    def test_a_store_that_refuses_is_an_error_that_says_why(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        directory = directory_at(provider_jvm, tmp_path / "store", retry_seconds=1)
        python = misbehaving_python(tmp_path, 5, refused=".arrow")
        with python_of_executors(directory, python):
            result = directory.result("put a.arrow 10")
        assert result.startswith("error ObjectStoreException")
        assert "is unavailable: writing state/0/0/a.arrow failed for" in result
        assert "the quota is used up" in result
        assert directory.result("list") == ""


def test_batches_commit_while_snapshots_are_not_uploaded(
    spark: SparkSession, directory: Directory, tmp_path: Path
) -> None:
    held, store = tmp_path / "held", directory_store(tmp_path / "store")
    held.touch()
    settings = {PROVIDER_KEY: PROVIDER_CLASS, **SNAPSHOTS, **store.settings}
    stream = Stream(spark, tmp_path / "query", settings)
    for seed in range(6):
        stream.feed(random_rows(seed, count=50, keys=20))
    python = misbehaving_python(tmp_path, seed=5, held=str(held))
    with python_of_executors(directory, python), maintenance_of(spark):
        stream.run(totals(stream))
        assert stream.totals() == totals_of(stream.fed)
        assert not [*tmp_path.glob("store/**/*.snapshot.arrow")]
        # A snapshot holds the version that is the newest when the snapshot begins.
        begun = [int(name.rpartition("/")[2][:19]) for name in held.read_text().splitlines()]
        assert min(begun) < 6
        held.unlink()
        eventually(lambda: bool([*tmp_path.glob("store/**/*.snapshot.arrow")]))


def test_batches_commit_while_merged_files_are_not_uploaded(
    provider_jvm: ProviderJvm, directory: Directory, tmp_path: Path
) -> None:
    held, root = tmp_path / "held", tmp_path / "checkpoint"
    held.touch()
    root.mkdir()
    (root / "metadata").write_text('{"id":"query"}')
    script = Script()
    store = f"stateStore.cowstate.store={tmp_path / 'store'}"
    script.then(f"{START} {store} stateStore.minDeltasForSnapshot=1000")
    for number in range(100):
        if number == 80:
            script.then("begin-maintenance", f"await-content {held} -> true")
        script.then("begin", f"put {number % 9} 2:{number}", "commit")
    script.then(f"end-maintenance {held}")
    script.then(f"entries -> {shown({n % 9: WordValue(2, n) for n in range(100)})}")
    python = misbehaving_python(tmp_path, seed=6, held=str(held), holding=".merged.arrow")
    with python_of_executors(directory, python):
        script.run_on(provider_jvm.new("ProviderScript", str(root)))
    assert [*tmp_path.glob("store/**/*.merged.arrow")]


class Rounds:
    """A store of a query, and the content of each version."""

    def __init__(self, jvm: ProviderJvm, root: Path) -> None:
        self._jvm = jvm
        self._root = root
        self.version = 0
        self.entries: dict[int, WordValue] = {}

    def run(self, chance: random.Random) -> None:
        """Run the query: executors run batches after keeping, loading or losing their state."""
        (self._root / "checkpoint").mkdir(exist_ok=True)
        (self._root / "checkpoint" / "metadata").write_text('{"id":"query"}')
        script = Script()
        deltas = chance.randint(1, 3)
        script.then(
            f"{START} minBatchesToRetain=2 stateStore.minDeltasForSnapshot={deltas} "
            f"stateStore.cowstate.store={self._root / 'store'}"
        )
        for _ in range(chance.randint(2, 6)):
            script.then(f"executor {chance.choice('ab')}")
            if chance.random() < 0.2:
                self._abandon(script, chance)
            self._commit(script, chance)
            if chance.random() < 0.6:
                script.then("write-if-due", "clean")
        script.then("executor c", f"entries {self.version} -> {shown(self.entries)}")
        script.run_on(self._jvm.new("ProviderScript", f"{self._root}/checkpoint/state"))

    def _abandon(self, script: Script, chance: random.Random) -> None:
        script.then(f"begin {self.version}")
        script.then(f"put {chance.randrange(40)} 3:{chance.randrange(10**6)}", "abort")

    def _commit(self, script: Script, chance: random.Random) -> None:
        script.then(f"begin {self.version}")
        for _ in range(chance.randint(0, 12)):
            number, value = (
                chance.randrange(40),
                WordValue(chance.randint(1, 20), chance.randrange(99)),
            )
            if chance.random() < 0.3:
                self.entries.pop(number, None)
                script.then(f"remove {number}")
            else:
                self.entries[number] = value
                script.then(f"put {number} {value}")
        script.then("commit")
        self.version += 1


@pytest.mark.parametrize("rounds", ROUNDS)
def test_random_rounds_with_killed_gateways_and_a_store_that_misbehaves_lose_nothing(
    provider_jvm: ProviderJvm, directory: Directory, tmp_path: Path, rounds: int
) -> None:
    chance = random.Random(rounds)
    query = Rounds(provider_jvm, tmp_path)
    python = misbehaving_python(tmp_path, rounds, slow=0.1, failing=0.05, truncating=0.05)
    with python_of_executors(directory, python), kills(chance, most_seconds=1.5) as killed:
        for _ in range(rounds):
            query.run(chance)
    assert killed
    query.run(chance)
