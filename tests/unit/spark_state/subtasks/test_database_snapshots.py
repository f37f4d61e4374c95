"""Database snapshots of an operator in RocksDB serve restarts, any parallelism, and readers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpoint_store.files.state_handle import StateHandle, bytes_of
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.state_reader import open_store
from spark_state.executor import running_executor
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.subtask_backends import SubtaskBackends
from spark_state.subtasks.subtask_session import SubtaskSession
from tests.support.operators.subtasks import KEY_SCHEMA, Host, OpenHost, Totals, operator

IN_ROCKSDB = BackendSettings(kind="rocksdb")
ON_HEAP = BackendSettings()
KEYS = [f"key {number}" for number in range(60)]


class Query:
    """An operator whose subtasks run epoch after epoch. `expected`: the right totals by key."""

    def __init__(self, open_host: OpenHost) -> None:
        self._open = open_host
        self._chance = random.Random(7)
        self._runs = 0
        self.epoch = 0
        self.hosts: list[Host] = []
        self.expected: Totals = {}

    def restart(self, parallelism: int, backend: BackendSettings = IN_ROCKSDB) -> None:
        for host in self.hosts:
            host.close()
        self._runs += 1
        self.hosts = [
            self._open(
                run_id=f"run-{self._runs}",
                subtask=subtask,
                parallelism=parallelism,
                backend=backend,
                min_epochs_for_snapshot=2,
                key_schema_json=KEY_SCHEMA,
            )
            for subtask in range(parallelism)
        ]

    def run(self, epochs: int = 1, keys: Sequence[str] = KEYS) -> None:
        """Run epochs with a row of every key, and check the output."""
        for _ in range(epochs):
            rows = [(key, self._chance.randrange(100)) for key in keys]
            output: Totals = {}
            for host in self.hosts:
                output |= host.epoch(self.epoch, rows)
                host.finish_maintenance()
            for key, value in rows:
                count, total = self.expected.get(key, (0, 0))
                self.expected[key] = (count + 1, total + value)
            assert output == {key: self.expected[key] for key in keys}
            self.epoch += 1

    def databases(self) -> list[StateHandle]:
        """Return the handles of the databases that hold the state."""
        return [file for host in self.hosts for file in host.handles if file.kind == "database"]


@pytest.fixture
def query(open_host: OpenHost) -> Query:
    return Query(open_host)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The directory of the operator's store."""
    return tmp_path / "query" / "totals"


PARALLELISMS = (1, 2, 3, 5, 8)


@pytest.mark.parametrize("before", PARALLELISMS)
@pytest.mark.long
def test_a_restart_at_any_parallelism_has_every_key_once(query: Query, before: int) -> None:
    for after in PARALLELISMS:
        query.restart(before)
        query.run(4)
        assert len({file.name for file in query.databases()}) >= before
        query.restart(after)
        query.run(1)


@pytest.mark.parametrize(
    "backends", [(ON_HEAP, IN_ROCKSDB), (IN_ROCKSDB, ON_HEAP), (IN_ROCKSDB, IN_ROCKSDB)]
)
@pytest.mark.long
def test_a_backend_takes_over_from_the_other_one(
    query: Query, backends: tuple[BackendSettings, BackendSettings]
) -> None:
    for parallelism, backend in zip((2, 3, 1, 2), backends * 2, strict=True):
        query.restart(parallelism, backend)
        query.run(4)


def test_files_of_rows_are_written_where_databases_are_not_wanted(query: Query) -> None:
    query.restart(1, replace(IN_ROCKSDB, incremental=False))
    query.run(6)
    assert not query.databases()
    assert any(file.kind == "snapshot" for file in query.hosts[0].handles)
    query.restart(1)
    query.run(6)
    assert query.databases()


@pytest.mark.long
def test_snapshots_of_short_runs_add_to_the_database(query: Query, stored: Path) -> None:
    query.restart(1)
    query.run(4)
    for _ in range(8):
        query.restart(1)
        query.run(1)
    assert len(query.databases()) == 1
    assert not [*stored.glob("epochs/*/snapshot-*")]
    assert len([*stored.glob("epochs/*/database-*")]) > 2


def test_a_state_in_databases_is_read_without_the_operator(query: Query, stored: Path) -> None:
    query.restart(2)
    query.run(5)
    assert query.databases()
    reader = open_store(str(stored))
    rows: list[dict[str, Any]] = reader.read().to_pylist()
    assert {row["key"]: tuple(row.values())[1:] for row in rows} == query.expected


def test_what_an_epoch_writes_counts_new_tables_only(query: Query) -> None:
    query.restart(1)
    query.run(4)
    (before,) = query.databases()
    while query.databases() == [before]:
        query.run(1, KEYS[:1])
    report = query.hosts[0].report
    assert report is not None
    (after,) = query.databases()
    new = bytes_of([before, after]) - bytes_of([before])
    changelog = query.hosts[0].handles[-1].length
    assert report.written_bytes == new + changelog


@pytest.mark.long
def test_retention_deletes_tables_with_their_last_user(query: Query, stored: Path) -> None:
    query.restart(1)
    query.run(3)
    for _ in range(12):
        query.run(3)
    store = CompletedCheckpointStore(LocalObjectStore(stored))
    store.retain(2)
    latest = store.latest_before(query.epoch)
    assert latest is not None
    needed = latest.object_names()
    previous = store.latest_before(query.epoch - 1)
    assert previous is not None
    tables = {str(path.relative_to(stored)) for path in stored.glob("epochs/*/table-*")}
    assert tables == {name for name in needed | previous.object_names() if "/table-" in name}
    query.restart(3)
    query.run(1)


def test_the_orphan_sweep_takes_what_no_barrier_names(
    query: Query, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.restart(1)
    query.run(4)
    assert query.databases()
    orphan = next(stored.glob("epochs/*/table-*"))
    left = orphan.with_name(orphan.name.replace("table-00000", "table-00001"))
    left.write_bytes(orphan.read_bytes())
    other = orphan.with_name(f"database-00001-{orphan.stem.split('-', 2)[2]}.json")
    other.write_bytes(b"{}")
    CompletedCheckpointStore(LocalObjectStore(stored)).sweep_orphans(0, 2**40)
    assert not left.exists()
    assert not other.exists()
    query.restart(2)
    query.run(1)


Damage = Callable[[Path], object]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_table_is_named_and_nothing_is_lost(
    query: Query, stored: Path, damage: Damage
) -> None:
    query.restart(1)
    query.run(5)
    part = query.databases()[0].parts[0].name
    kept = (stored / part).read_bytes()
    damage(stored / part)
    query.restart(1)
    with pytest.raises(Exception, match=part):
        query.run(1)
    (stored / part).write_bytes(kept)
    query._chance = random.Random(8)
    query.hosts[0].close()
    query.restart(1)
    query.run(2)


def test_local_files_of_a_restore_go_with_the_host(query: Query, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    settings = replace(IN_ROCKSDB, local_directory=str(local))
    query.restart(2, settings)
    query.run(4)
    query.restart(1, settings)
    query.run(1)
    assert [*local.rglob("CURRENT")]
    assert not [*local.rglob("other")]
    for host in query.hosts:
        assert isinstance(host.session, SubtaskSession)
        host.close()
    assert not [*local.rglob("CURRENT")]


class _KilledBackends(SubtaskBackends):
    """Backends of a killed host: `close` removes no files and only releases the locks."""

    def close(self) -> None:
        self._folders.clear()
        self._held.close()
        for copies in self._copies.values():
            copies.held.close()


@pytest.mark.parametrize("local_recovery", [True, False])
def test_a_host_that_follows_a_killed_one_downloads_what_is_not_here(
    open_host: OpenHost, maintenance: Maintenance, tmp_path: Path, local_recovery: bool
) -> None:
    executor = running_executor(os.getpid())
    assert executor is not None
    local = tmp_path / "local"
    local.mkdir()
    backend = replace(IN_ROCKSDB, local_directory=str(local), local_recovery=local_recovery)
    spec = operator(tmp_path, backend=backend, min_epochs_for_snapshot=2)
    killed = Host(spec, backends=_KilledBackends(executor)).open(maintenance)
    for epoch in range(5):
        killed.epoch(epoch, [(key, 1) for key in KEYS])
        killed.finish_maintenance()
    tables = {part.name for handle in killed.handles for part in handle.parts}
    assert tables
    killed.close()
    read: set[str] = set()
    get = LocalObjectStore.get

    def note(self: LocalObjectStore, name: str) -> bytes:
        read.add(name)
        return get(self, name)

    with mock.patch.object(LocalObjectStore, "get", note):
        follower = Host(spec, run_id="later", backends=SubtaskBackends(executor)).open(maintenance)
        assert follower.epoch(5, [("key 1", 1)]) == {"key 1": (6, 6)}
    assert read & tables == (set() if local_recovery else tables)
    follower.close()
    assert not [*local.rglob("table-*")], "a host that ends itself leaves nothing"


def test_a_host_that_holds_the_state_takes_another_backend(open_host: OpenHost) -> None:
    host = open_host(backend=ON_HEAP)
    host.epoch(0, [("a", 1)])
    assert host.session is not None
    for run, backend in enumerate((IN_ROCKSDB, ON_HEAP), 1):
        host.spec, host.run_id = replace(host.spec, backend=backend), f"run-{run}"
        assert host.epoch(run, [("a", 1)]) == {"a": (run + 1, run + 1)}
        is_rocksdb = isinstance(host.session.state.backend, RocksDBKeyedStateBackend)
        assert is_rocksdb == (backend is IN_ROCKSDB)
