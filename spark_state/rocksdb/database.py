"""A RocksDB database on the local disk, for one backend.

Column families hold rows: pairs of a key and a value, both bytes. The database is a working copy:
the durable changes of epochs are in the store. So there is no write-ahead log, and no other process
opens the database after the end of this process. A table is a file of sorted rows, which never
changes.

rocksdict holds Python's global interpreter lock (GIL) while RocksDB writes rows, makes a checkpoint
or closes, but not during a flush, which writes rows from memory to a table. If RocksDB waits while
rocksdict holds the GIL, all subtasks of the host stop. So a write first waits in Python until
RocksDB no longer stalls writes. And rows are flushed before a checkpoint and before the close, so
that RocksDB has nothing left to flush while rocksdict holds the GIL.

RocksDB has a checksum for every block of a table, and detects damage when a block is read. After
one failed read the whole database counts as failed and must be restored, even if the caller of the
read caught the error. A table is uploaded only after a check of all its blocks, see
`DatabaseCheckpoint.check`.
"""

from __future__ import annotations

import logging
import os
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
"""Function that records an exception of rocksdict and returns the error to raise."""
Range = tuple[bytes, bytes]
"""The first key, included, and the end key, excluded."""

IF_THE_DISK_IS_FULL = (
    "If the disk is full, free space, or name a directory on a larger one: for a query with "
    "spark.cowstate.rocksdb.localDirectory, for a reader or a command with TMPDIR"
)
_log = logging.getLogger(__name__)
_DEFAULT = "default"
_SMALL = ("CURRENT", "MANIFEST-", "rocksdict-config")
_BYTES_OF_BATCH = 1 << 20
_BEHIND_ALL = b"\xff\xff\xff"

# RocksDB stops or slows writes until enough rows are in files, or enough files are compacted.
_STALLS = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")
_STALL_SECONDS = 0.005
_ERRORS = "rocksdb.background-errors"
# Folder to which RocksDB's repair moves unreadable tables.
_LOST = "lost"
_MEMORY = ("rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem")


class Reads:
    """Record of the failed reads of a database below `folder`, by any thread. Column families
    refer to this record and not to the Database, because a reference to the Database would keep the
    database open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failure: StateHostError | None = None

    def failed(self, error: Exception) -> StateHostError:
        """Record a failed read and return the error to raise."""
        self.failure = StateHostError(
            f"RocksDB cannot read its files below {self.folder}: {error}. The next attempt "
            "restores the state from the store. If this happens again, the disk is damaged: set "
            "spark.cowstate.rocksdb.localDirectory to a directory on another one"
        )
        # If the database is restored meanwhile, nobody receives the error of a snapshot.
        _log.error("%s", self.failure)
        return self.failure


class Database:
    """A database in `folder`. `close` deletes the files.

    `memory`: memory shared with other databases, None for RocksDB's default memory; `settings`:
    None for the defaults of DatabaseSettings. If the folder `files_below(folder)` has the files of
    a database, they are opened; otherwise the database is new and empty. Raises StateHostError if
    RocksDB cannot open the files.
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
        with self._telling_where():
            # RocksDB opens a database only with all column families. A new database has only the
            # default family.
            families = Rdict.list_cf(str(files)) if files.exists() else [_DEFAULT]
            folder.mkdir(parents=True, exist_ok=True)
            of_families = {family: family_options(memory, self._settings) for family in families}
            self._rdict: Any = Rdict(
                str(files), database_options(memory, self._settings), of_families
            )
        self._kept = {family for family in families if family != _DEFAULT}
        self._families = max((int(name) for name in self._kept), default=0)
        # The stubs of rocksdict declare the property `disable_wal` as a method.
        write_options: Any = WriteOptions()
        write_options.disable_wal = True
        self._write_options = write_options
        self._rdict.set_write_options(write_options)

    def new_column_family(self) -> ColumnFamily:
        """Create an empty column family."""
        self._families += 1
        name = str(self._families)
        return self._opened(
            name,
            self._rdict.create_column_family(name, family_options(self._memory, self._settings)),
        )

    def kept_column_family(self, name: str, key_groups: Sequence[Range]) -> ColumnFamily:
        """Open a column family that the files had when the database was opened, and delete the rows
        outside `key_groups`. `key_groups`: sorted ranges of rows. Raises StateHostError."""
        self._kept.remove(name)
        family = self._opened(name, self._rdict.get_column_family(name))
        with self._telling_where():
            family.clip(key_groups, self._write_options)
        return family

    def drop_what_is_kept(self) -> None:
        """Delete each column family that the files had when the database was opened, unless
        `kept_column_family` has opened it."""
        while self._kept:
            self._rdict.drop_column_family(self._kept.pop())

    def _opened(self, name: str, rows: Any) -> ColumnFamily:
        handle = self._rdict.get_column_family_handle(name)
        family = ColumnFamily(name, rows, handle, self._reads.failed)
        self._open[name] = family
        return family

    def drop(self, family: ColumnFamily) -> None:
        """Delete a column family with all rows."""
        del self._open[family.name]
        self._rdict.drop_column_family(family.name)
        family.let_go()

    def write(self, batch: Batch) -> None:
        """Write all rows of a batch. Raises StateHostError."""
        if batch.rows:
            self._await_room()
            with self._telling_where():
                self._rdict.write(batch.rows)

    def _await_room(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait while RocksDB would stall a write. The wait ends if RocksDB has failed, or if
        `check`, which is called meanwhile, raises."""
        stalls = self._rdict.property_int_value
        while any(map(stalls, _STALLS)) and not self.has_failed():
            check()
            time.sleep(_STALL_SECONDS)

    def copy(self, rows: Iterable[Row], family: ColumnFamily, check: Callable[[], None]) -> None:
        """Write rows of another database into `family`. Raises StateHostError, and the errors of
        `check`, which is called while RocksDB stalls writes."""
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
        """Return the bytes of memory for rows not yet in files and for metadata of files. Cached
        blocks of files are not counted, because all databases share the cache."""
        return sum(family.memory_bytes() for family in self._open.values())

    def has_failed(self) -> bool:
        """Return True if a read has failed, or if RocksDB could not write rows to files and so
        refuses all further rows."""
        if self._reads.failure is not None:
            return True
        errors: int | None = self._rdict.property_int_value(_ERRORS)
        return bool(errors)

    def check_reads(self) -> None:
        """Raise the error of a failed read, even if the caller of the read has caught the error."""
        if self._reads.failure is not None:
            raise self._reads.failure

    def close(self) -> None:
        """Close the database and delete the files, except the files of checkpoints. Safe to call
        again."""
        # The rows are given up, so a failed flush, on a full disk, does not matter.
        with suppress(Exception):
            for family in self._open.values():
                family.flush()
        with suppress(Exception):
            self._rdict.close()
        # RocksDB closes the database when the last reference goes. Let go before the files are
        # deleted, because without the files RocksDB would wait for a second.
        for family in self._open.values():
            family.let_go()
        self._open.clear()
        self._rdict = None
        shutil.rmtree(files_below(self._folder), ignore_errors=True)
        _remove_if_empty(self._folder)

    def checkpoint(self) -> DatabaseCheckpoint:
        """Make a checkpoint of the current rows. Table files are linked, not copied. Raises
        StateHostError, and leaves no files after an error."""
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
        """Raise StateHostError, with the folder, for any exception of rocksdict."""
        try:
            yield
        except Exception as error:
            raise StateHostError(
                f"RocksDB failed below {self._folder}: {error}. What epochs have made durable is "
                f"in the store. {IF_THE_DISK_IS_FULL}"
            ) from error


class ColumnFamily:
    """Rows sorted by key: pairs of a key and a value, both bytes."""

    def __init__(self, name: str, rows: Any, handle: Any, failed: ReadFailed) -> None:
        self.name = name
        self.handle = handle
        self._rows = rows
        self._failed = failed
        read = rows.get

        def get(key: bytes) -> bytes | None:
            try:
                value: bytes | None = read(key)
            except Exception as error:  # rocksdict has no exception class of its own
                raise failed(error) from error
            return value

        self.get = get

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of keys, None for a missing key. Fastest for sorted keys."""
        try:
            values: list[bytes | None] = self._rows.get(keys)
        except Exception as error:
            raise self._failed(error) from error
        return values

    def memory_bytes(self) -> int:
        """Return the bytes in memory, see Database.memory_bytes."""
        return sum(self._rows.property_int_value(name) or 0 for name in _MEMORY)

    def flush(self) -> None:
        """Write the rows in memory to a file, while other threads go on."""
        self._rows.flush()

    def let_go(self) -> None:
        """Drop the references to RocksDB's objects. No read is possible afterwards."""
        self._rows = self.handle = None
        del self.get

    def clip(self, ranges: Sequence[Range], write_options: Any) -> None:
        """Delete the rows outside `ranges`, which are sorted."""
        self._rows.set_write_options(write_options)
        begin = b""
        for start, end in (*ranges, (_BEHIND_ALL, b"")):
            if begin < start:
                self._rows.delete_range(begin, start, write_options)
            begin = end

    def first(self, start: bytes) -> bytes | None:
        """Return the first key from `start` on; None if there is no such key."""
        rows = self._rows.iter()
        rows.seek(start)
        return _key_at(rows, self._failed)

    def last(self, end: bytes) -> bytes | None:
        """Return the last key up to `end`; None if there is no such key."""
        rows = self._rows.iter()
        rows.seek_for_prev(end)
        return _key_at(rows, self._failed)

    def rows(self, start: bytes, end: bytes) -> Iterator[Row]:
        """Yield the rows from `start`, included, to `end`, excluded, in order."""
        return _rows(self._rows, start, end, self._failed)


def files_below(folder: Path) -> Path:
    """Return the folder for the files of a Database in `folder`."""
    return folder / "db"


class DatabaseCheckpoint:
    """A database at one moment: a folder of files that never change and that any thread may read.
    A snapshot of rocksdict is no substitute, because its iterators also see later changes."""

    def __init__(self, folder: Path, failed: ReadFailed) -> None:
        self.folder = folder
        self._failed = failed

    def open(self, families: Sequence[str]) -> ReadOnlyDatabase:
        """Open the checkpoint to read the column families `families`."""
        return ReadOnlyDatabase(self.folder, families, self._failed)

    def check(self, tables: Sequence[str]) -> None:
        """Read RocksDB's manifest and all blocks of `tables`. Raises StateHostError if a file is
        damaged, so that no damaged file is uploaded.

        The check runs RocksDB's repair on links to the tables: the repair reads whole tables and
        moves unreadable tables to another folder. Other threads can work meanwhile.
        """
        try:
            Rdict.list_cf(str(self.folder))
        except Exception as error:  # rocksdict has no exception class of its own
            raise _cannot_open(self.folder, error, self._failed) from error
        damaged = self._damaged(tables) if tables else []
        if damaged:
            raise self._failed(ValueError(f"these tables are damaged: {', '.join(damaged)}"))

    def _damaged(self, tables: Sequence[str]) -> list[str]:
        """Return the names of the damaged tables among `tables`."""
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
            return damaged
        except Exception as error:
            raise StateHostError(
                f"the files in {self.folder} cannot be checked: {error}. {IF_THE_DISK_IS_FULL}"
            ) from error
        finally:
            shutil.rmtree(links, ignore_errors=True)

    def tables(self) -> list[str]:
        """Return the names of the tables, sorted."""
        return sorted(path.name for path in self.folder.glob("*.sst"))

    def small_files(self) -> dict[str, bytes]:
        """Return the content of the files that describe the tables, by name. The file of RocksDB's
        options is left out, because a restore opens the database with its own options."""
        files = self.folder.iterdir()
        return {path.name: path.read_bytes() for path in files if path.name.startswith(_SMALL)}

    def release(self) -> None:
        """Delete the files. Safe to call again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _remove_if_empty(self.folder.parent)


class ReadOnlyDatabase:
    """A database opened only for reading; a context manager. `failed`: reports a failed read to the
    open Database that shares the files; None if no open Database shares the files."""

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
        except Exception as error:  # rocksdict has no exception class of its own
            raise _cannot_open(folder, error, failed) from error

    def _cannot_read(self, error: Exception) -> StateHostError:
        return _cannot_open(self._folder, error, None)

    def rows(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Yield the rows of a column family from `start`, included, to `end`, excluded, in
        order."""
        return _rows(self._rdict.get_column_family(family), start, end, self._failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rdict.close()


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
        """Put a value for each key in `rows`, without a loop in Python, which would take longer
        than the puts. `handle`: the column family's handle."""
        deque(map(self.put, rows, values, repeat(handle)), maxlen=0)


def _rows(rows: Any, start: bytes, end: bytes, failed: ReadFailed) -> Iterator[Row]:
    last = None
    for row in rows.items(from_key=start):
        if row[0] >= end:
            return
        last = row[0]
        yield row
    # At an unreadable row an iterator ends without an error, as if there were no more rows. A new
    # iterator, from the last row on, meets the unreadable row again and has the error.
    behind = rows.iter()
    behind.seek(start if last is None else last)
    if last is not None and behind.valid():
        behind.next()
    key = _key_at(behind, failed)
    if key is not None and key < end:
        raise failed(ValueError(f"rows end before {key!r}"))


def _key_at(rows: Any, failed: ReadFailed) -> bytes | None:
    """Return the key at the position of an iterator; None if the iterator is behind the last row.
    Raises the error of `failed` if the iterator cannot read the row."""
    if rows.valid():
        key: bytes = rows.key()
        return key
    try:
        rows.status()
    except Exception as error:  # rocksdict has no exception class of its own
        raise failed(error) from error
    return None


def _remove_if_empty(folder: Path) -> None:
    """Delete the folder of a database if neither the database nor a checkpoint has files there."""
    with suppress(OSError):
        folder.rmdir()


def range_end(prefix: bytes) -> bytes:
    """Return the end key, excluded, of the range of all keys that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "nothing is greater"
    return stripped[:-1] + bytes([stripped[-1] + 1])
