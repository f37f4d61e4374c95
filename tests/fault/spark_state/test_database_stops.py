"""Snapshots and restores of databases may stop at any point without harm to later attempts.

A failed restore fails its epoch with an error of cowstate. A failed snapshot fails no epoch. The
next attempt succeeds in the same host. No files stay on the local disk, and no threads. A barrier
names only objects that exist and hold the right state.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_store.errors import CowstateError
from spark_state.errors import StateHostError
from spark_state.rocksdb import database
from spark_state.rocksdb.database import Batch, ColumnFamily, Database, Row
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.support.leaks import in_use
from tests.support.operators.counts_operator import check_nothing_named_is_missing
from tests.support.operators.subtasks import Host, Totals, operator, use_store
from tests.support.processors.processors import KeepsTotalsAndValues
from tests.support.stores.fake_object_store import DictObjectStore, InterceptedObjectStore

pytestmark = pytest.mark.fault

KEYS = [f"key {number}" for number in range(40)]
EPOCHS_BEFORE = 5
MOST_STOPS = 8
AFTER = dict.fromkeys(KEYS, (1, 1))


@dataclass
class Stop:
    """A counter of calls; only call number `at` fails. Threads may share a counter."""

    at: int = 0
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> bool:
        with self._lock:
            self.calls += 1
            return self.calls == self.at


class Query:
    """A query with an operator in RocksDB. Each epoch has a row for every key, and every third
    epoch clears all states. All hosts share `intercepted`."""

    def __init__(self, folder: Path, maintenance: Maintenance, patch: pytest.MonkeyPatch) -> None:
        self.local = folder / "local"
        self.local.mkdir()
        self.intercepted = InterceptedObjectStore(DictObjectStore())
        self.epoch = 0
        self.expected: Totals = {}
        self.hosts: list[Host] = []
        self._runs = 0
        self._attempts = 0
        self._maintenance = maintenance
        self._spec = operator(
            folder,
            KeepsTotalsAndValues(),
            backend=BackendSettings(kind="rocksdb", local_directory=str(self.local)),
            min_epochs_for_snapshot=2,
        )
        use_store(patch, self.intercepted)

    def begin(self, objects: DictObjectStore) -> None:
        """Continue from objects that a query wrote in EPOCHS_BEFORE epochs."""
        self.end()
        self.intercepted.store = objects.copy()
        self.epoch, self.expected = EPOCHS_BEFORE, dict(AFTER)

    def restart(self, parallelism: int) -> None:
        """Begin a run with new hosts."""
        self.end()
        self._runs += 1
        spec = replace(self._spec, parallelism=parallelism)
        self.hosts = [
            Host(spec, subtask, f"run-{self._runs}").open(self._maintenance)
            for subtask in range(parallelism)
        ]

    def end(self) -> None:
        """End all hosts."""
        for host in self.hosts:
            host.close()
        self.hosts = []

    def run_subtask(self, host: Host) -> Totals:
        """Run an attempt of the epoch in a subtask, and check its output."""
        self._attempts += 1
        output = host.epoch(self.epoch, self.rows(), self._attempts)
        host.finish_maintenance()
        expected = self.after()
        assert output == {key: expected[key] for key in KEYS if host.own_key(key)}
        return output

    def rows(self) -> list[tuple[str, int]]:
        return [(key, self.epoch % 3) for key in KEYS]

    def after(self) -> Totals:
        """The state after the next epoch."""
        value = self.epoch % 3
        if not value:
            return dict.fromkeys(KEYS, (0, 0))
        return {key: (n + 1, total + value) for key, (n, total) in self.expected.items()}

    def end_epoch(self) -> None:
        """Note that all subtasks have run the epoch."""
        self.expected = self.after()
        self.epoch += 1

    def run(self, epochs: int = 1) -> None:
        """Run epochs in all subtasks."""
        for _ in range(epochs):
            for host in self.hosts:
                self.run_subtask(host)
            self.end_epoch()

    def databases(self) -> set[str]:
        """The names of the databases that hold the state."""
        handles = chain.from_iterable(host.handles for host in self.hosts)
        return {handle.name for handle in handles if handle.kind == "database"}

    def check_named(self) -> None:
        """Assert that every object named by a barrier or a manifest exists."""
        objects = self.intercepted.store
        check_nothing_named_is_missing(objects)
        for host in self.hosts:
            if host.session is None or host.session.state.handles is None:
                continue
            for handle in host.handles:
                assert {handle.name, *(p.name for p in handle.parts)} <= objects.objects.keys()

    def local_databases(self) -> set[Path]:
        """The folders with files on the local disk; each folder belongs to an open database."""
        folders = {path.parent for path in self.local.rglob("*") if path.is_file()}
        assert {folder.name for folder in folders} <= {"db"}
        return folders


@pytest.fixture
def query(
    tmp_path: Path, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Query]:
    query = Query(tmp_path, maintenance, monkeypatch)
    yield query
    query.end()
    assert not [*query.local.rglob("*")]


@pytest.fixture
def two_databases(query: Query) -> DictObjectStore:
    """Build a store with the databases of two subtasks."""
    query.restart(2)
    query.run(EPOCHS_BEFORE)
    assert query.expected == AFTER
    assert len(query.databases()) == 2
    query.end()
    return query.intercepted.store.copy()


def full_disk() -> Exception:
    """The error that Python raises if the disk is full."""
    return OSError(errno.ENOSPC, "No space left on device")


def full_disk_of_rocksdb() -> Exception:
    """The error that rocksdict raises if the disk is full."""
    return Exception("IO error: No space left on device: While appending to file")


def network_down() -> Exception:
    """The error that a store raises without a network."""
    return OSError("the network is down")


def refused(stop: Stop, error: Callable[[], Exception], function: Any) -> Any:
    """Wrap `function` so that the call chosen by `stop` fails."""

    def call(*arguments: Any, **named: Any) -> Any:
        if stop():
            raise error()
        return function(*arguments, **named)

    return call


Fault = Callable[[Query, pytest.MonkeyPatch, Stop], None]


def get_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    getting = query.intercepted.getting
    patch.setattr(query.intercepted, "getting", refused(stop, network_down, getting))


def is_of_database(name: str) -> bool:
    """Return True if an object with this name belongs to a database."""
    return "/table-" in name or "/database-" in name


def object_is_cut(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    def cut(name: str, data: bytes) -> bytes:
        return data[: len(data) // 2] if is_of_database(name) and stop() else data

    patch.setattr(query.intercepted, "getting", cut)


def file_is_refused(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    patch.setattr(Path, "write_bytes", refused(stop, full_disk, Path.write_bytes))


def file_is_cut(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    write = Path.write_bytes

    def write_some(path: Path, data: bytes) -> int:
        if stop():
            write(path, data[: len(data) // 2])
            raise full_disk()
        return write(path, data)

    patch.setattr(Path, "write_bytes", write_some)


def folder_is_refused(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Refuse a new folder, but no folder for checking tables: see check_is_refused."""
    make = os.mkdir

    def make_or_not(path: Any, *arguments: Any) -> None:
        if not os.path.exists(path) and not str(path).endswith("-checked") and stop():
            raise full_disk()
        make(path, *arguments)

    patch.setattr(os, "mkdir", make_or_not)


def opening_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    opened = refused(stop, full_disk_of_rocksdb, database.Rdict)
    families = refused(stop, full_disk_of_rocksdb, database.Rdict.list_cf)

    def list_families(folder: str) -> Any:
        # A snapshot reads the tables of its checkpoint.
        return (database_rdict.list_cf if "checkpoint-" in folder else families)(folder)

    database_rdict = database.Rdict
    opened.list_cf, opened.repair = list_families, database_rdict.repair
    patch.setattr(database, "Rdict", opened)


def clip_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Let a clip fail after deleting its rows."""
    clip = ColumnFamily.clip

    def clip_and_fail(family: ColumnFamily, *arguments: Any) -> None:
        clip(family, *arguments)
        if stop():
            raise full_disk_of_rocksdb()

    patch.setattr(ColumnFamily, "clip", clip_and_fail)


def copy_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Let a copy fail after reading or copying some rows."""
    copy = Database.copy

    def copy_some(
        own: Database, rows: Iterable[Row], family: ColumnFamily, check: Callable[[], None]
    ) -> None:
        def read() -> Iterator[Row]:
            for number, row in enumerate(rows):
                if number % 8 == 0 and stop():
                    raise StateHostError("RocksDB failed: IO error: while reading a file")
                yield row

        with patch.context() as small:
            small.setattr(database, "_BYTES_OF_BATCH", 100)
            copy(own, read(), family, check)

    patch.setattr(Database, "copy", copy_some)


def rows_are_refused(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Let RocksDB refuse a batch, either of a copy or at the end of the epoch."""
    write = Database.write

    def write_or_not(own: Database, batch: Batch) -> None:
        if stop():
            batch.rows = "no batch"  # type: ignore[assignment]
        write(own, batch)

    patch.setattr(Database, "write", write_or_not)


RESTORE_FAULTS: list[Fault] = [
    get_fails,
    object_is_cut,
    file_is_refused,
    file_is_cut,
    folder_is_refused,
    opening_fails,
    clip_fails,
    copy_fails,
    rows_are_refused,
]


def named(fault: Fault) -> str:
    return fault.__name__


@contextmanager
def no_threads_left() -> Iterator[None]:
    """Assert that no thread is left, except threads of maintenance, which wait for more work."""
    before = in_use().threads
    yield
    lasting = ("cowstate-snapshots", "cowstate-parts")
    assert not {name for name in in_use().threads - before if not name.startswith(lasting)}


@pytest.mark.parametrize(
    ("fault", "parallelism"),
    [*((fault, 3) for fault in RESTORE_FAULTS), (copy_fails, 1), (rows_are_refused, 1)],
)
def test_a_restore_that_stops_is_tried_again(
    query: Query,
    two_databases: DictObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    parallelism: int,
) -> None:
    """With three subtasks, the subtask in the middle has a part of the rows of both databases. With
    a single subtask, all rows are copied."""
    stop_at, calls = 0, 1
    while stop_at <= calls:
        query.begin(two_databases)
        query.restart(parallelism)
        host = query.hosts[parallelism // 2]
        stop = Stop(stop_at)
        with no_threads_left(), monkeypatch.context() as patch:
            fault(query, patch, stop)
            if stop_at:
                with pytest.raises(CowstateError):
                    query.run_subtask(host)
            else:
                query.run_subtask(host)
                calls = stop.calls
        if stop_at:
            # The state restored before the epoch failed stays until the next attempt.
            assert len(query.local_databases()) <= (fault is rows_are_refused)
            query.run_subtask(host)
            assert len(query.local_databases()) == 1
        query.check_named()
        stop_at += 1
    assert calls >= 2
    # The run goes on, and so does a run after it.
    for other in query.hosts:
        if other is not host:
            query.run_subtask(other)
    query.end_epoch()
    query.run(4)
    query.restart(2)
    query.run()


def put_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    def put(name: str, put_it: Callable[[], None]) -> None:
        if is_of_database(name) and stop():
            raise network_down()
        put_it()

    patch.setattr(query.intercepted, "putting", put)


def answer_is_lost(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    def put(name: str, put_it: Callable[[], None]) -> None:
        put_it()
        if is_of_database(name) and stop():
            raise network_down()

    patch.setattr(query.intercepted, "putting", put)


def store_goes_away(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Let the store refuse all further objects of a database."""

    def put(name: str, put_it: Callable[[], None]) -> None:
        if is_of_database(name) and (stop() or 0 < stop.at < stop.calls):
            raise network_down()
        put_it()

    patch.setattr(query.intercepted, "putting", put)


def local_read_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    def error() -> Exception:
        return OSError(errno.EIO, "Input/output error")

    patch.setattr(Path, "read_bytes", refused(stop, error, Path.read_bytes))


def checkpoint_fails(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Let RocksDB stop a checkpoint after linking some of the files."""
    whole = database.Checkpoint

    class SomeOfCheckpoint:
        def __init__(self, rdict: Any) -> None:
            self._checkpoint = whole(rdict)

        def create_checkpoint(self, folder: str) -> None:
            self._checkpoint.create_checkpoint(folder)
            if stop():
                for file in sorted(Path(folder).iterdir())[::2]:
                    file.unlink()
                raise full_disk_of_rocksdb()

    patch.setattr(database, "Checkpoint", SomeOfCheckpoint)


def check_is_refused(query: Query, patch: pytest.MonkeyPatch, stop: Stop) -> None:
    """Refuse the space for checking tables before the upload."""
    make = os.mkdir

    def make_or_not(path: Any, *arguments: Any) -> None:
        if str(path).endswith("-checked") and stop():
            raise full_disk()
        make(path, *arguments)

    patch.setattr(os, "mkdir", make_or_not)


SNAPSHOT_FAULTS: list[Fault] = [
    check_is_refused,
    put_fails,
    answer_is_lost,
    store_goes_away,
    local_read_fails,
    checkpoint_fails,
]


def some_of(calls: int) -> list[int]:
    """The numbers of at most MOST_STOPS calls, evenly spread from the first to the last."""
    return [*map(round, np.linspace(1, calls, min(calls, MOST_STOPS)))]


@pytest.mark.parametrize("fault", SNAPSHOT_FAULTS, ids=named)
def test_a_snapshot_that_stops_fails_no_epoch_and_is_never_named(
    query: Query,
    two_databases: DictObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    """The first epoch after the restart waits for its snapshot, later epochs do not wait."""
    stops = [0]
    while stops:
        stop_at = stops.pop()
        query.begin(two_databases)
        query.restart(1)
        stop = Stop(stop_at)
        with no_threads_left(), monkeypatch.context() as patch:
            fault(query, patch, stop)
            for _ in range(4):
                query.run()
                query.check_named()
                assert len(query.local_databases()) == 1
        if not stop_at:
            assert stop.calls >= 2
            stops = some_of(stop.calls)
        before = query.databases()
        query.run(4)
        assert query.databases().isdisjoint(before), "no snapshot was written"
        query.check_named()
        query.restart(3)
        query.run()
