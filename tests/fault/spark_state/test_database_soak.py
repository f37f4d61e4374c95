"""An operator in RocksDB stays correct in random rounds with a misbehaving store and local disk.

A round is a few runs of a query, each with its own parallelism and backend. RocksDB writes
databases as snapshots all the time. Attempts of epochs fail at any point, epochs run again, hosts
disappear or lag behind, and retention and the orphan sweep run in between. The output of each
successful attempt, and the state at the end of each run, equal the results of a plain dict.
"""

from __future__ import annotations

import errno
import glob
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_store.errors import CorruptObjectError, StoreUnavailableError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import StateHostError
from spark_state.rocksdb.database import Batch, Database, DatabaseCheckpoint
from spark_state.subtasks.epoch_request import BackendSettings, CheckpointSettings, OperatorStart
from spark_state.subtasks.maintenance import Maintenance
from tests.support.leaks import in_use
from tests.support.operators.subtasks import (
    KEY_SCHEMA,
    Host,
    Totals,
    operator,
    stored_totals,
    take_back,
    use_store,
)
from tests.support.processors.processors import KeepsTotalsAndValues
from tests.support.stores.fake_object_store import MisbehavingObjectStore

pytestmark = pytest.mark.fault

KEYS = [f"key {number}" for number in range(40)]
CHECKPOINTS = CheckpointSettings(3, 2, 86_400, 120, start_empty=False)
ATTEMPTS = 4
POISONED = "a negative value"
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 200))]

Rows = list[tuple[str, int]]


class TaskGoneError(Exception):
    """The task of an attempt was killed."""


class LocalDisk:
    """The local disk. While the disk is full, `refuses` decides about each write."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refuses: Callable[[], bool] = lambda: False
        write_bytes, write, checkpoint = Path.write_bytes, Database.write, Database.checkpoint

        def write_file(path: Path, data: bytes) -> int:
            if "local" in path.parts and self.refuses():
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return write_bytes(path, data)

        def write_rows(database: Database, batch: Batch) -> None:
            if self.refuses():
                raise StateHostError("RocksDB failed: No space left on device")
            write(database, batch)

        def take(database: Database) -> DatabaseCheckpoint:
            if self.refuses():
                raise StateHostError("RocksDB failed: No space left on device")
            return checkpoint(database)

        patch.setattr(Path, "write_bytes", write_file)
        patch.setattr(Database, "write", write_rows)
        patch.setattr(Database, "checkpoint", take)


class RandomQuery:
    """A query with random runs, hosts and faults.

    `expected`: the right state after `epoch` epochs. `before`: the right state one epoch earlier,
    None if an epoch was undone since.
    """

    def __init__(
        self, seed: int, folder: Path, maintenance: Maintenance, patch: pytest.MonkeyPatch
    ) -> None:
        self.chance = random.Random(seed)
        self.folder = folder / "query" / "totals"
        self.local = folder / "local"
        self.local.mkdir()
        self.disk = LocalDisk(patch)
        self.store = MisbehavingObjectStore(LocalObjectStore(self.folder), random.Random(seed))
        self.epoch = 0
        self.expected: Totals = {}
        self.before: Totals | None = None
        self.failures = 0
        self.databases = 0
        self._operator = operator(
            folder,
            KeepsTotalsAndValues(),
            checkpoints=CHECKPOINTS,
            key_schema_json=KEY_SCHEMA,
        )
        self._maintenance = maintenance
        self._runs = 0
        self._attempts = 0
        self._hosts: list[Host] = []
        use_store(patch, self.store, retry_seconds=120)

    def behave(self) -> None:
        """Stop all faults of the store and the disk."""
        self.store.behave()
        self.disk.refuses = lambda: False

    def misbehave(self) -> None:
        """Draw the fault of the next attempt."""
        chance, store = self.chance, self.store
        self.behave()
        match chance.randrange(10):
            case 0:
                store.failing = 0.2
            case 1:
                store.truncating = 0.1
            case 2:
                store.calls_left = chance.randrange(1, 30)
            case 3:
                store.refused = chance.choice(["/table-", "/database-", "/changelog-", "/barrier-"])
            case 4:
                works = chance.randrange(4)
                self.disk.refuses = lambda: chance.randrange(4) >= works
            case 5:
                self._damage_a_table()
            case _:
                store.slow = 0.5

    def _damage_a_table(self) -> None:
        """Flip bytes of a file of an open database. The next reads come from the disk."""
        # Folders and tables disappear meanwhile: glob.glob ignores the gaps, Path.glob fails.
        tables = sorted(glob.glob(f"{self.local}/**/db/*.sst", recursive=True))
        if not tables:
            return
        with suppress(FileNotFoundError), open(self.chance.choice(tables), "r+b") as table:
            data = bytearray(table.read())
            for at in range(self.chance.randrange(64), len(data), 512):
                data[at] ^= 0x20
            table.seek(0)
            table.write(data)
        for host in self._hosts:
            if host.backends._memory is not None:
                host.backends._memory.blocks.set_capacity(0)

    def restart(self) -> None:
        """Begin a run. Some hosts of the previous run go on, unless the parallelism changes."""
        chance = self.chance
        self._runs += 1
        backend = BackendSettings(
            kind=chance.choice(["rocksdb", "rocksdb", "rocksdb", "heap"]),
            local_directory=str(self.local),
            incremental=chance.random() < 0.9,
        )
        parallelism = chance.choice([1, 1, 2, 2, 3, 3, 5, 8])
        spec = replace(self._operator, parallelism=parallelism, backend=backend)
        for host in [*self._hosts]:
            if host.spec.parallelism != parallelism or chance.random() < 0.5:
                self._end(host)
            else:
                host.spec, host.run_id = spec, f"run-{self._runs}"
        self._spec = spec
        # After a run that failed in the next epoch, a run may undo the last epoch.
        reached = CompletedCheckpointStore(LocalObjectStore(self.folder)).bases.lineage().reached
        if reached > self.epoch:
            take_back(self.folder.parents[1], "file:/checkpoint", self.epoch - 1)
        self._start = OperatorStart("file:/checkpoint")
        for host in self._hosts:
            host.start = self._start

    def _end(self, host: Host) -> None:
        self._hosts.remove(host)
        host.close()

    def end(self) -> None:
        """End all hosts."""
        for host in [*self._hosts]:
            self._end(host)

    def run_epoch(self, misbehaves: bool = True) -> bool:
        """Run the next epoch and check its output. Return False if the run has failed."""
        fed: Rows = []
        for subtask in range(self._spec.parallelism):
            rows = self._run_subtask(subtask, misbehaves)
            if rows is None:
                return False
            fed += rows
        self.before, self.expected = self.expected, after(self.expected, fed)
        self.epoch += 1
        return True

    def _run_subtask(self, subtask: int, misbehaves: bool) -> Rows | None:
        """Return the input rows of the attempt that counts, or None if no attempt succeeded."""
        counted = None
        for _ in range(ATTEMPTS):
            if misbehaves:
                self.misbehave()
            # A failed attempt may have published its barrier, so another attempt must follow.
            counted = self._attempt(subtask, misbehaves)
            # A stage may run again although the subtask has succeeded: the later attempt counts.
            if counted is not None and self.chance.random() < 0.8:
                return counted
        return counted

    def _attempt(self, subtask: int, misbehaves: bool) -> Rows | None:
        self._attempts += 1
        print(f"run {self._runs} epoch {self.epoch} subtask {subtask} attempt {self._attempts}")
        host = None
        try:
            host = self._host_of(subtask)
            rows = [row for row in self._rows() if host.own_key(row[0])]
            poisoned = misbehaves and self.chance.random() < 0.1
            check = self._check() if misbehaves else lambda: None
            fed = [*rows, *((key, -1) for key, _ in rows[-1:] if poisoned)]
            output = host.epoch(self.epoch, fed, self._attempts, check)
        except (StoreUnavailableError, CorruptObjectError, TaskGoneError, StateHostError) as error:
            print(f"failed: {error!r}")
            self._fail(host)
            return None
        except Exception as error:
            if POISONED not in str(error):
                raise
            self._fail(host)
            return None
        expected = after(self.expected, rows)
        assert output == {key: expected.get(key, (0, 0)) for key, _ in rows}
        self.databases += sum(handle.kind == "database" for handle in host.handles)
        if self.chance.random() < 0.5:
            host.finish_maintenance()
        return rows

    def _fail(self, host: Host | None) -> None:
        self.failures += 1
        if host is not None and self.chance.random() < 0.2:
            self._end(host)

    def _host_of(self, subtask: int) -> Host:
        """Choose an existing host of a subtask, which may lag behind, or open a new host."""
        hosts = [host for host in self._hosts if host.subtask == subtask]
        if hosts and (len(hosts) > 1 or self.chance.random() < 0.8):
            return self.chance.choice(hosts)
        host = Host(self._spec, subtask, f"run-{self._runs}", start=self._start)
        host.open(self._maintenance)
        self._hosts.append(host)
        return host

    def _rows(self) -> Rows:
        """Draw rows of some keys. A 0 clears the state of its key."""
        keys = self.chance.sample(KEYS, self.chance.randrange(len(KEYS) + 1))
        return [(key, self.chance.choice([0, 1, 2, 3, 4, 5])) for key in keys]

    def _check(self) -> Callable[[], None]:
        """Build a check that raises at a random call if the task is to be killed."""
        left = self.chance.randrange(15) if self.chance.random() < 0.2 else None

        def check() -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise TaskGoneError

        return check

    def undo_epoch(self) -> None:
        """Undo the last epoch, as if the sink had failed: another run repeats the epoch."""
        if self.before is not None:
            self.epoch -= 1
            self.expected, self.before = self.before, None

    def clean_up(self) -> None:
        """Run retention, and a sweep of all objects that no barrier names."""
        self.behave()
        for host in self._hosts:
            host.finish_maintenance()
            assert host.session is not None
            pending = host.session.snapshots._pending
            if pending is not None:
                pending.unnamed._shown = -1e9  # no sign of life for longer than the grace
        checkpoints = CompletedCheckpointStore(LocalObjectStore(self.folder))
        # A failed run may have published one epoch after the undone epoch.
        checkpoints.retain(self.chance.randrange(3, 5))
        checkpoints.sweep_orphans(0, time.time() + 3_600)

    def check_state(self) -> None:
        """Assert that the store has the state of the last epoch. The next epoch may be there, too,
        if the run failed in the next epoch."""
        if self.epoch:
            # The driver says that Spark has committed the first epoch of its run.
            checkpoints = CompletedCheckpointStore(LocalObjectStore(self.folder))
            checkpoints.starts.note_reached(f"run-{self._runs}", self.epoch)
            assert stored_totals(self.folder, self.epoch - 1) == self.expected

    def check_local_files(self) -> None:
        """Assert that local files belong to open databases. Call this when no snapshot is being
        written."""
        folders = {path.parent for path in self.local.rglob("*") if path.is_file()}
        assert {folder.name for folder in folders} <= {"db"}, folders
        open_databases = sum(
            host.session is not None and host.session.state._backend is not None
            for host in self._hosts
        )
        assert len(folders) <= open_databases


def after(state: Totals, rows: Rows) -> Totals:
    """The state after these rows."""
    totals = dict(state)
    for key, value in rows:
        count, total = totals.get(key, (0, 0))
        totals[key] = (count + 1, total + value)
        if not value:
            del totals[key]
    return totals


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_round_has_the_state_of_a_dict(
    seed: int, tmp_path: Path, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    query = RandomQuery(seed, tmp_path, maintenance, monkeypatch)
    threads = in_use().threads
    try:
        for _ in range(query.chance.randrange(3, 6)):
            query.restart()
            for _ in range(query.chance.randrange(2, 7)):
                if not query.run_epoch():
                    break
                if query.chance.random() < 0.2:
                    query.clean_up()
                    query.check_local_files()
            query.behave()
            if query.chance.random() < 0.4:
                query.undo_epoch()
            else:
                query.check_state()
        query.restart()
        query.clean_up()
        assert query.run_epoch(misbehaves=False)
        query.check_state()
        assert query.failures
    finally:
        query.end()
    # A snapshot that is being written has files until the write ends. A state host waits for the
    # write before it removes its folder; these hosts ended earlier.
    maintenance.close()
    assert not [path for path in query.local.rglob("*") if path.is_file()]
    assert not {name for name in in_use().threads - threads if "restore" in name}
