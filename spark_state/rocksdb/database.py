"""A RocksDB database on the local disk, as one backend uses it.

Column families hold rows of bytes. Nothing here is the truth: what an epoch made durable is in the
store, so there is no write-ahead log, and a database goes with the process that opened it.

rocksdict keeps Python's global lock while RocksDB writes rows, makes a checkpoint and closes, and
gives it up while it flushes. A wait with that lock would stop all subtasks of a host. So a write
waits beforehand, in Python, until RocksDB would not hold it up; and rows are flushed before a
checkpoint and before a close, which would flush them.

RocksDB has a checksum for every block of a file, and sees damage when it reads one. A read that has
failed makes the database one that has failed, whoever has seen the error: it is restored. A table
is uploaded only after all of it was read, see `DatabaseCheckpoint.check`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Any, Self

from rocksdict import AccessType, Checkpoint, Options, Rdict, WriteBatch, WriteOptions

from spark_state.errors import StateHostError
from spark_state.rocksdb.database_options import (
    DatabaseMemory,
    database_options,
    family_options,
)
from spark_state.rocksdb.database_settings import DatabaseSettings

Row = tuple[bytes, bytes]
ReadFailed = Callable[[Exception], StateHostError]
"""Notes what rocksdict raised, and returns the error to raise."""
Range = tuple[bytes, bytes]
"""From one key up to another one, without it."""

IF_THE_DISK_IS_FULL = (
    "If the disk is full, free space, or name a directory on a larger one: for a query with "
    "spark.cowstate.rocksdb.localDirectory, for a reader or a command with TMPDIR"
)
_log = logging.getLogger(__name__)
_DEFAULT = "default"
_SMALL = ("CURRENT", "MANIFEST-", "rocksdict-config")
_BYTES_OF_BATCH = 1 << 20
_IGNORED = re.compile(r"Table #(\d+): ignoring (.*)")
_BEHIND_ALL = b"\xff\xff\xff"

# RocksDB stops or slows writes until it has made enough files of rows, or fewer files of them.
_STALLS = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")
_STALL_SECONDS = 0.005
_ERRORS = "rocksdb.background-errors"
# Where RocksDB's repair moves tables that it cannot read.
_LOST = "lost"
_MEMORY = ("rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem")


class Reads:
    """What became of the reads of a database below `folder`, in any thread. Its own object: a
    column family that had the database would keep it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failure: StateHostError | None = None

    def failed(self, error: Exception) -> StateHostError:
        """See ReadFailed."""
        self.failure = StateHostError(
            f"RocksDB cannot read its files below {self.folder}: {error}. The next attempt "
            "restores the state from the store. If this happens again, the disk is damaged: set "
            "spark.cowstate.rocksdb.localDirectory to a directory on another one"
        )
        # A snapshot of a database that is restored meanwhile has nobody to tell it.
        _log.error("%s", self.failure)
        return self.failure


class Database:
    """A database in `folder`, which is deleted at the end. `memory`: None for that of RocksDB's
    defaults; `settings`: None for ours.

    It is new and empty unless `files_below(folder)` has the files of one. Raises StateHostError if
    they cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        memory: DatabaseMemory | None = None,
        settings: DatabaseSettings | None = None,
    ) -> None:
        self._folder = folder
        self._memory = memory
        self._settings = settings or DatabaseSettings()
        self._checkpoints = 0
        self._reads = Reads(folder)
        self._open: dict[str, ColumnFamily] = {}
        files = files_below(folder)
        # RocksDB opens only all column families together. None but the default one are new.
        families = [_DEFAULT]
        if files.exists():
            with self._telling_where():
                families = Rdict.list_cf(str(files))
        with self._telling_where():
            folder.mkdir(parents=True, exist_ok=True)
        self._kept = {family for family in families if family != _DEFAULT}
        self._families = max((int(name) for name in self._kept), default=0)
        of_families = {family: family_options(memory, self._settings) for family in families}
        with self._telling_where():
            self._rdict: Any = Rdict(
                str(files), database_options(memory, self._settings), of_families
            )
        # A property, which the stubs of rocksdict take for a method.
        write_options: Any = WriteOptions()
        write_options.disable_wal = True
        self._write_options = write_options
        self._rdict.set_write_options(write_options)

    def new_column_family(self) -> ColumnFamily:
        """An empty column family."""
        self._families += 1
        name = str(self._families)
        return self._opened(
            name,
            self._rdict.create_column_family(name, family_options(self._memory, self._settings)),
        )

    def kept_column_family(self, name: str, key_groups: Sequence[Range]) -> ColumnFamily:
        """A column family that the files have, without the rows outside of these ranges, which are
        in order. Raises StateHostError."""
        self._kept.remove(name)
        family = self._opened(name, self._rdict.get_column_family(name))
        with self._telling_where():
            family.clip(key_groups, self._write_options)
        return family

    def drop_what_is_kept(self) -> None:
        """Delete the column families that the files have and nobody has asked for."""
        while self._kept:
            self._rdict.drop_column_family(self._kept.pop())

    def _opened(self, name: str, rows: Any) -> ColumnFamily:
        handle = self._rdict.get_column_family_handle(name)
        family = ColumnFamily(name, rows, handle, self._reads.failed)
        self._open[name] = family
        return family

    def drop(self, family: ColumnFamily) -> None:
        """Delete a column family with all its rows."""
        del self._open[family.name]
        self._rdict.drop_column_family(family.name)
        family.let_go()

    def write(self, batch: Batch) -> None:
        """Write all of a batch. Raises StateHostError."""
        if batch.rows:
            self._await_room()
            with self._telling_where():
                self._rdict.write(batch.rows)

    def _await_room(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait as long as RocksDB would hold a write up, unless it has failed and refuses all, or
        `check` raises."""
        while self._holds_writes_up() and not self.has_failed():
            check()
            time.sleep(_STALL_SECONDS)

    def _holds_writes_up(self) -> bool:
        return any(self._rdict.property_int_value(name) for name in _STALLS)

    def copy(self, rows: Iterable[Row], family: ColumnFamily, check: Callable[[], None]) -> None:
        """Write rows of another database. Raises StateHostError, and what `check` raises, which is
        called while RocksDB holds the rows up."""
        batch, held_bytes = Batch(), 0
        for row, data in rows:
            batch.put(row, data, family.handle)
            held_bytes += len(row) + len(data)
            if held_bytes >= _BYTES_OF_BATCH:
                self._await_room(check)
                self.write(batch)
                batch, held_bytes = Batch(), 0
        self._await_room(check)
        self.write(batch)

    def memory_bytes(self) -> int:
        """The memory of rows that are not in files yet and of what is known of files, without the
        blocks of files, which databases share."""
        return sum(family.memory_bytes() for family in self._open.values())

    def has_failed(self) -> bool:
        """Whether rows could not be written to files, so that RocksDB refuses all rows behind them;
        or files could not be read."""
        if self._reads.failure is not None:
            return True
        errors: int | None = self._rdict.property_int_value(_ERRORS)
        return bool(errors)

    def check_reads(self) -> None:
        """Raise the error of a read that has failed, also if who read has caught it."""
        if self._reads.failure is not None:
            raise self._reads.failure

    def close(self) -> None:
        """Close the database and delete its files, but for those of checkpoints. Safe to call
        again."""
        # It is given up: that its last rows cannot be written, on a full disk, is no matter.
        with suppress(Exception):
            for family in self._open.values():
                family.flush()
        with suppress(Exception):
            self._rdict.close()
        # RocksDB ends with the last reference to it. If its files were gone by then, it would wait
        # for a second.
        for family in self._open.values():
            family.let_go()
        self._open.clear()
        self._rdict = None
        shutil.rmtree(files_below(self._folder), ignore_errors=True)
        _remove_if_empty(self._folder)

    def checkpoint(self) -> DatabaseCheckpoint:
        """The rows of this moment. The files of tables are linked, not copied. Raises
        StateHostError, and leaves no files then."""
        self._checkpoints += 1
        folder = self._folder / f"checkpoint-{self._checkpoints}"
        checkpoint = DatabaseCheckpoint(folder, self._reads.failed)
        try:
            with self._telling_where():
                for family in self._open.values():
                    family.flush()
                Checkpoint(self._rdict).create_checkpoint(str(checkpoint.folder))
        except StateHostError:
            checkpoint.release()
            raise
        return checkpoint

    @contextmanager
    def _telling_where(self) -> Iterator[None]:
        """Raise StateHostError for what rocksdict raises, which has no class of its own."""
        try:
            yield
        except Exception as error:
            raise StateHostError(
                f"RocksDB failed below {self._folder}: {error}. What epochs have made durable is "
                f"in the store. {IF_THE_DISK_IS_FULL}"
            ) from error


class ColumnFamily:
    """Rows of bytes, in the order of their keys."""

    def __init__(self, name: str, rows: Any, handle: Any, failed: ReadFailed) -> None:
        self.name = name
        self.handle = handle
        self._rows = rows
        self._failed = failed
        read = rows.get

        def get(key: bytes) -> bytes | None:
            try:
                value: bytes | None = read(key)
            except Exception as error:  # rocksdict's have no class of their own
                raise failed(error) from error
            return value

        self.get = get

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys, None where there is none. It is fastest for keys in order."""
        try:
            values: list[bytes | None] = self._rows.get(keys)
        except Exception as error:
            raise self._failed(error) from error
        return values

    def memory_bytes(self) -> int:
        """See Database."""
        return sum(self._rows.property_int_value(name) or 0 for name in _MEMORY)

    def flush(self) -> None:
        """Write the rows that are in memory to a file, while other threads go on."""
        self._rows.flush()

    def let_go(self) -> None:
        """Give up the database, which is closed. Nothing can be read any more."""
        self._rows = self.handle = None
        del self.get

    def clip(self, ranges: Sequence[Range], write_options: Any) -> None:
        """Delete the rows outside of these ranges, which are in order."""
        self._rows.set_write_options(write_options)
        begin = b""
        for start, end in (*ranges, (_BEHIND_ALL, b"")):
            if begin < start:
                self._rows.delete_range(begin, start, write_options)
            begin = end

    def first(self, start: bytes) -> bytes | None:
        """The first key from `start` on."""
        rows = self._rows.iter()
        rows.seek(start)
        return _key_at(rows, self._failed)

    def last(self, end: bytes) -> bytes | None:
        """The last key up to `end`."""
        rows = self._rows.iter()
        rows.seek_for_prev(end)
        return _key_at(rows, self._failed)

    def rows(self, start: bytes, end: bytes) -> Iterator[Row]:
        """The rows from `start` up to `end`, without it, in order."""
        return _rows(self._rows, start, end, self._failed)


def files_below(folder: Path) -> Path:
    """Where a Database in `folder` has its files."""
    return folder / "db"


class DatabaseCheckpoint:
    """A database as it was: a folder of files that nobody changes. Another thread may read it.

    The snapshots of rocksdict are no use here: their iterators see later changes, too.
    """

    def __init__(self, folder: Path, failed: ReadFailed) -> None:
        self.folder = folder
        self._failed = failed

    def open(self, families: Sequence[str]) -> ReadOnlyDatabase:
        """Open it to read these column families."""
        return ReadOnlyDatabase(self.folder, families, self._failed)

    def check(self, tables: Sequence[str]) -> None:
        """Read the file that names the tables, and all blocks of these tables. Raises
        StateHostError if one is not as RocksDB wrote it: nobody should ever restore it.

        RocksDB's repair reads tables as a whole, and moves those away that it cannot read. Here it
        has links to them. It lets other threads go on.
        """
        try:
            Rdict.list_cf(str(self.folder))
        except Exception as error:  # rocksdict's have no class of their own
            raise _cannot_open(self.folder, error, self._failed) from error
        damaged = self._damaged(tables) if tables else {}
        if damaged:
            problem = "; ".join(f"{table}: {reason}" for table, reason in damaged.items())
            raise self._failed(ValueError(problem))

    def _damaged(self, tables: Sequence[str]) -> dict[str, str]:
        """The tables that are not as they were written, each with what RocksDB says of it."""
        links = self.folder.with_name(f"{self.folder.name}-checked")
        try:
            links.mkdir()
            for table in tables:
                os.link(self.folder / table, links / table)
            Rdict.repair(str(links), Options(raw_mode=True))
            damaged = [table for table in tables if not (links / table).exists()]
            gone = [table for table in damaged if not (links / _LOST / table).exists()]
            if gone:
                raise FileNotFoundError(f"{gone[0]} was deleted meanwhile")
            return _with_reasons(damaged, links / "LOG") if damaged else {}
        except Exception as error:
            raise StateHostError(
                f"the files in {self.folder} cannot be checked: {error}. {IF_THE_DISK_IS_FULL}"
            ) from error
        finally:
            shutil.rmtree(links, ignore_errors=True)

    def tables(self) -> list[str]:
        """The files of sorted rows, in the order of their names; they never change."""
        return sorted(path.name for path in self.folder.glob("*.sst"))

    def small_files(self) -> dict[str, bytes]:
        """The files that say what the tables are. The options are those of who opens them, and
        there is no write-ahead log."""
        files = self.folder.iterdir()
        return {path.name: path.read_bytes() for path in files if path.name.startswith(_SMALL)}

    def release(self) -> None:
        """Delete the files. Safe to call again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _remove_if_empty(self.folder.parent)


class ReadOnlyDatabase:
    """Column families that nobody changes. A context manager. `failed`: None if no open database
    has the files, too."""

    def __init__(
        self, folder: Path, families: Sequence[str], failed: ReadFailed | None = None
    ) -> None:
        self._folder = folder
        self._failed = failed or self._cannot_read
        try:
            self._rdict = Rdict(
                str(folder),
                Options(raw_mode=True),
                column_families={name: Options(raw_mode=True) for name in families},
                access_type=AccessType.read_only(),
            )
        except Exception as error:  # rocksdict's have no class of their own
            raise _cannot_open(folder, error, failed) from error

    def _cannot_read(self, error: Exception) -> StateHostError:
        return _cannot_open(self._folder, error, None)

    def rows(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """The rows of a column family from `start` up to `end`, without it, in order."""
        return _rows(self._rdict.get_column_family(family), start, end, self._failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rdict.close()


def _with_reasons(damaged: Sequence[str], log: Path) -> dict[str, str]:
    """Tables that a repair has moved away, each with what its log says of it. They are damaged
    whether or not the log can be read."""
    reasons: dict[int, str] = {}
    with suppress(OSError), log.open(errors="replace") as lines:
        reasons = {int(match[1]): match[2] for match in filter(None, map(_IGNORED.search, lines))}
    unknown = "RocksDB's repair refuses it, and does not say why"
    return {table: reasons.get(int(Path(table).stem), unknown) for table in damaged}


def _cannot_open(folder: Path, error: Exception, failed: ReadFailed | None) -> StateHostError:
    if failed is not None and str(error).startswith("Corruption"):
        return failed(error)
    return StateHostError(
        f"RocksDB cannot read its files in {folder}: {error}. {IF_THE_DISK_IS_FULL}"
    )


class Batch:
    """Rows that are put and deleted together."""

    def __init__(self) -> None:
        self.rows = WriteBatch(raw_mode=True)
        self.put = self.rows.put
        self.delete = self.rows.delete

    def put_all(self, rows: Iterable[bytes], values: Iterable[bytes], handle: Any) -> None:
        """Put a value for each row. A loop of Python's would take longer than the puts."""
        deque(map(self.put, rows, values, repeat(handle)), maxlen=0)


def _rows(rows: Any, start: bytes, end: bytes, failed: ReadFailed) -> Iterator[Row]:
    last = None
    for row in rows.items(from_key=start):
        if row[0] >= end:
            return
        last = row[0]
        yield row
    # An iterator ends where it cannot read as if nothing were behind, and has no status. One that
    # begins at its last row meets the same.
    behind = rows.iter()
    behind.seek(start if last is None else last)
    if last is not None and behind.valid():
        behind.next()
    key = _key_at(behind, failed)
    if key is not None and key < end:
        raise failed(ValueError(f"rows end before {key!r}"))


def _key_at(rows: Any, failed: ReadFailed) -> bytes | None:
    """The key where an iterator is; None if it is behind all rows."""
    if rows.valid():
        key: bytes = rows.key()
        return key
    try:
        rows.status()
    except Exception as error:  # rocksdict's have no class of their own
        raise failed(error) from error
    return None


def _remove_if_empty(folder: Path) -> None:
    """The last of a database and its checkpoints takes their folder away."""
    with suppress(OSError):
        folder.rmdir()


def range_end(prefix: bytes) -> bytes:
    """The least bytes that are greater than all that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "nothing is greater"
    return stripped[:-1] + bytes([stripped[-1] + 1])
