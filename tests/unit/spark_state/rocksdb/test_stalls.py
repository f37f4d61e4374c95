"""A stalled RocksDB database does not block the host's other threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spark_state.errors import StateHostError
from spark_state.rocksdb import database as module
from spark_state.rocksdb.database import Batch, ColumnFamily, Database
from spark_state.rocksdb.database_options import DatabaseMemory

PATIENCE_SECONDS = 60
# The numbers of files at which RocksDB slows and stops writes.
SLOW, STOPPED = ("1", "1000"), ("1", "1")
AT_EASE = ("1000", "1000")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    memory = DatabaseMemory()
    memory.allow(512 << 20)
    database = Database(tmp_path / "database", memory)
    yield database
    database.close()


@pytest.fixture
def family(database: Database) -> ColumnFamily:
    """Make a column family with a single file of rows."""
    family = database.new_column_family()
    database.write(rows_of(family, 1))
    family.flush()
    return family


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def rows_of(family: ColumnFamily, count: int) -> Batch:
    batch, chance = Batch(), random.Random(count)
    for number in range(count):
        batch.put(b"%08d" % number, chance.randbytes(80), family.handle)
    return batch


def limit(family: ColumnFamily, files: tuple[str, str]) -> None:
    """Let RocksDB slow and stop writes at the numbers in `files`, and never merge files."""
    slow, stopped = files
    family._rows.set_options(
        {
            "level0_file_num_compaction_trigger": "1000",
            "level0_slowdown_writes_trigger": slow,
            "level0_stop_writes_trigger": stopped,
        }
    )


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.parametrize("files", [SLOW, STOPPED])
def test_a_write_that_is_held_up_waits_while_other_threads_go_on(
    database: Database, family: ColumnFamily, thread: ThreadPoolExecutor, files: tuple[str, str]
) -> None:
    """A stalled write that kept the global lock would block this thread forever."""
    limit(family, files)
    writing: Future[None] = thread.submit(database.write, rows_of(family, 50))
    for _ in range(10):
        time.sleep(0.005)
        assert not writing.done()
    assert family.get(b"%08d" % 49) is None
    limit(family, AT_EASE)
    writing.result()
    assert family.get(b"%08d" % 49) is not None


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.parametrize("value_bytes", [10, 2 << 20], ids=["the last batch", "a full batch"])
def test_a_copy_that_is_held_up_ends_when_nobody_waits_for_it(
    database: Database, family: ColumnFamily, value_bytes: int
) -> None:
    class TaskGone(Exception):
        pass

    def check() -> None:
        raise TaskGone

    limit(family, STOPPED)
    try:
        with pytest.raises(TaskGone):
            database.copy([(b"key", bytes(value_bytes))], family, check)
    finally:
        limit(family, AT_EASE)
    assert family.get(b"key") is None


def test_a_write_to_a_database_that_has_failed_does_not_wait(
    database: Database, family: ColumnFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(family, STOPPED)
    monkeypatch.setattr(database, "has_failed", lambda: True)

    class Refusing:
        """Rows that RocksDB refuses, as after a failure."""

        def __bool__(self) -> bool:
            return True

    batch = Batch()
    batch.rows = Refusing()  # type: ignore[assignment]
    with pytest.raises(StateHostError, match="RocksDB failed below"):
        database.write(batch)


def test_a_checkpoint_has_nothing_to_flush_with_the_global_lock(
    database: Database, family: ColumnFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory: list[int] = []
    whole = module.Checkpoint

    def checkpoint(rdict: Any) -> Any:
        in_memory.append(rows_in_memory(family))
        return whole(rdict)

    monkeypatch.setattr(module, "Checkpoint", checkpoint)
    database.write(rows_of(family, 10))
    assert rows_in_memory(family) == 10
    database.checkpoint().release()
    assert in_memory == [0]


def test_a_close_has_nothing_to_flush_with_the_global_lock(
    database: Database, family: ColumnFamily
) -> None:
    in_memory: list[int] = []

    class Closing:
        """A database of rocksdict that notes the rows in memory at close."""

        def __init__(self, rdict: Any) -> None:
            self._rdict = rdict

        def __getattr__(self, name: str) -> Any:
            return getattr(self._rdict, name)

        def close(self) -> None:
            in_memory.append(rows_in_memory(family))
            self._rdict.close()

    database._rdict = Closing(database._rdict)
    database.write(rows_of(family, 10))
    database.close()
    assert in_memory == [0]


def rows_in_memory(family: ColumnFamily) -> int:
    count: int = family._rows.property_int_value("rocksdb.num-entries-active-mem-table")
    return count


def test_a_flush_lets_other_threads_go_on(database: Database, family: ColumnFamily) -> None:
    steps, flushed = 0, threading.Event()

    def step() -> None:
        nonlocal steps
        while not flushed.wait(0.0005):
            steps += 1

    database.write(rows_of(family, 300_000))
    other = threading.Thread(target=step)
    other.start()
    try:
        family.flush()
    finally:
        flushed.set()
        other.join()
    assert steps > 5
