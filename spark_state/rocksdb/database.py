"""A RocksDB database on the local disk, as one backend uses it. The only importer of rocksdict.

Column families hold rows of bytes. Nothing here is the truth: what an epoch made durable is in the
store, so there is no write-ahead log, and a database goes with the process that opened it.

rocksdict keeps Python's global lock while RocksDB writes rows, makes a checkpoint and closes, and
gives it up while it flushes. A wait with that lock would stop all subtasks of a host. So a write
waits beforehand, in Python, until RocksDB would not hold it up; rows are flushed before a
checkpoint; and a database that is closed has no column families left with many rows, which it would
flush.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from spark_state.errors import StateHostError

Row = tuple[bytes, bytes]
Range = tuple[bytes, bytes]
"""From one key up to another one, without it."""

IF_THE_DISK_IS_FULL = (
    "If the disk is full, free space, or name a directory on a larger one: for a query with "
    "spark.cowstate.rocksdb.localDirectory, for a reader or a command with TMPDIR"
)
_DEFAULT = "default"
_SMALL = ("CURRENT", "MANIFEST-", "rocksdict-config")
_BYTES_OF_BATCH = 1 << 20
_MANIFEST_BYTES = 64 << 10
_BEHIND_ALL = b"\xff\xff\xff"

# RocksDB stops or slows writes until it has made enough files of rows, or fewer files of them.
_STALLS = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")
_STALL_SECONDS = 0.005
_ERRORS = "rocksdb.background-errors"
_UNFLUSHED = "rocksdb.cur-size-all-mem-tables"
_MEMORY = (_UNFLUSHED, "rocksdb.estimate-table-readers-mem")


class DatabaseMemory:
    """Memory that several databases share: blocks of files, and rows that are not written yet."""

    def __init__(self) -> None:
        self._bytes = 0
        self.blocks = Cache(0)
        # Counted within the blocks. When they are full, a database begins to write rows to files.
        # Nobody waits for that: on a full disk it would be forever, and would stop the process.
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            1, False, self.blocks
        )

    def allow(self, most_bytes: int) -> None:
        """Let the databases use so many bytes together, or more if more were allowed before."""
        if most_bytes > self._bytes:
            self._bytes = most_bytes
            self.blocks.set_capacity(most_bytes)
            self.write_buffers.set_buffer_size(most_bytes // 2)


class Database:
    """A database in `folder`, which is deleted at the end. `memory`: None for that of RocksDB's
    defaults.

    It is new and empty unless `files_below(folder)` has the files of one. Raises StateHostError if
    they cannot be opened.
    """

    def __init__(self, folder: Path, memory: DatabaseMemory | None = None) -> None:
        self._folder = folder
        self._memory = memory
        self._checkpoints = 0
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
        options = self._options()
        options.create_if_missing(True)
        # Each snapshot has the manifest, which notes every change of the tables until it is begun
        # anew.
        options.set_max_manifest_file_size(_MANIFEST_BYTES)
        if memory is not None:
            options.set_write_buffer_manager(memory.write_buffers)
        with self._telling_where():
            self._rdict: Any = Rdict(
                str(files), options, {family: self._options() for family in families}
            )
        # A property, which the stubs of rocksdict take for a method.
        write_options: Any = WriteOptions()
        write_options.disable_wal = True
        self._write_options = write_options
        self._rdict.set_write_options(write_options)

    def _options(self) -> Options:
        """Those of a column family."""
        options = Options(raw_mode=True)
        # Tables go to the store as they are.
        options.set_compression_type(DBCompressionType.zstd())
        if self._memory is not None:
            blocks = BlockBasedOptions()
            blocks.set_block_cache(self._memory.blocks)
            blocks.set_cache_index_and_filter_blocks(True)
            blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
            blocks.set_bloom_filter(10, False)
            options.set_block_based_table_factory(blocks)
        return options

    def new_column_family(self) -> ColumnFamily:
        """An empty column family."""
        self._families += 1
        name = str(self._families)
        return self._opened(name, self._rdict.create_column_family(name, self._options()))

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
        family = ColumnFamily(name, rows, self._rdict.get_column_family_handle(name))
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

    def _await_room(self) -> None:
        """Wait as long as RocksDB would hold a write up, unless it has failed and refuses all."""
        while self._holds_writes_up() and not self.has_failed():
            time.sleep(_STALL_SECONDS)

    def _holds_writes_up(self) -> bool:
        return any(self._rdict.property_int_value(name) for name in _STALLS)

    def copy(self, rows: Iterable[Row], family: ColumnFamily) -> None:
        """Write rows of another database. Raises StateHostError."""
        batch, held_bytes = Batch(), 0
        for row, data in rows:
            batch.put(row, data, family.handle)
            held_bytes += len(row) + len(data)
            if held_bytes >= _BYTES_OF_BATCH:
                self.write(batch)
                batch, held_bytes = Batch(), 0
        self.write(batch)

    def memory_bytes(self) -> int:
        """The memory of rows that are not in files yet and of what is known of files, without the
        blocks of files, which databases share."""
        return sum(family.memory_bytes() for family in self._open.values())

    def has_failed(self) -> bool:
        """Whether rows could not be written to files. RocksDB refuses all rows behind them."""
        errors: int | None = self._rdict.property_int_value(_ERRORS)
        return bool(errors)

    def close(self) -> None:
        """Close the database and delete its files, but for those of checkpoints. Safe to call
        again."""
        # It is given up: that its last rows cannot be written, on a full disk, is no matter.
        with suppress(Exception):
            for family in self._open.values():
                if family.unflushed_bytes() > _BYTES_OF_BATCH:
                    self._rdict.drop_column_family(family.name)
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
        checkpoint = DatabaseCheckpoint(self._folder / f"checkpoint-{self._checkpoints}")
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

    def __init__(self, name: str, rows: Any, handle: Any) -> None:
        self.name = name
        self.handle = handle
        self._rows = rows
        self.get: Callable[[bytes], bytes | None] = rows.get

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys, None where there is none. It is fastest for keys in order."""
        values: list[bytes | None] = self._rows.get(keys)
        return values

    def memory_bytes(self) -> int:
        """See Database."""
        return sum(self._rows.property_int_value(name) or 0 for name in _MEMORY)

    def unflushed_bytes(self) -> int:
        """The memory of rows that are not in files yet."""
        return self._rows.property_int_value(_UNFLUSHED) or 0

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
        return rows.key() if rows.valid() else None

    def last(self, end: bytes) -> bytes | None:
        """The last key up to `end`."""
        rows = self._rows.iter()
        rows.seek_for_prev(end)
        return rows.key() if rows.valid() else None

    def rows(self, start: bytes, end: bytes) -> Iterator[Row]:
        """The rows from `start` up to `end`, without it, in order."""
        return _rows(self._rows, start, end)


def files_below(folder: Path) -> Path:
    """Where a Database in `folder` has its files."""
    return folder / "db"


class DatabaseCheckpoint:
    """A database as it was: a folder of files that nobody changes. Another thread may read it.

    The snapshots of rocksdict are no use here: their iterators see later changes, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, families: Sequence[str]) -> ReadOnlyDatabase:
        """Open it to read these column families."""
        return ReadOnlyDatabase(self.folder, families)

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
    """Column families that nobody changes. A context manager."""

    def __init__(self, folder: Path, families: Sequence[str]) -> None:
        try:
            self._rdict = Rdict(
                str(folder),
                Options(raw_mode=True),
                column_families={name: Options(raw_mode=True) for name in families},
                access_type=AccessType.read_only(),
            )
        except Exception as error:  # rocksdict's have no class of their own
            raise StateHostError(
                f"RocksDB cannot read its files in {folder}: {error}. {IF_THE_DISK_IS_FULL}"
            ) from error

    def rows(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """The rows of a column family from `start` up to `end`, without it, in order."""
        return _rows(self._rdict.get_column_family(family), start, end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rdict.close()


class Batch:
    """Rows that are put and deleted together."""

    def __init__(self) -> None:
        self.rows = WriteBatch(raw_mode=True)
        self.put = self.rows.put
        self.delete = self.rows.delete


def _rows(rows: Any, start: bytes, end: bytes) -> Iterator[Row]:
    for row in rows.items(from_key=start):
        if row[0] >= end:
            return
        yield row


def _remove_if_empty(folder: Path) -> None:
    """The last of a database and its checkpoints takes their folder away."""
    with suppress(OSError):
        folder.rmdir()


def range_end(prefix: bytes) -> bytes:
    """The least bytes that are greater than all that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "nothing is greater"
    return stripped[:-1] + bytes([stripped[-1] + 1])
