"""The restore of a backend from databases in a store, without reading row by row.

The database with the best `score` becomes the backend's own database. The restore downloads the
files and deletes the rows of other key groups as ranges, at no cost per row. After a change of
parallelism there may be more databases. The restore copies the rows of each further database as
bytes, and downloads the next database meanwhile. See Flink's RocksDBIncrementalRestoreOperation. A
database whose rows this release would write differently, because a schema has changed, is left to
the caller, who reads files row by row.

Flink starts with an empty database if no handle has three quarters of the handle's key groups in
the range, because deleted rows stay in the files for a time. Here the best database is always
taken: copying the rows of half a database costs more than deleting the other half.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from checkpoint_store.files.database_file_store import tables_of
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.codecs.codec import Forms
from spark_state.errors import StateHostError
from spark_state.keyed_state.backend_restore import BackendRestore
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.rocksdb.database import IF_THE_DISK_IS_FULL, ReadOnlyDatabase, files_below
from spark_state.rocksdb.local_copies import DatabaseHome
from spark_state.rocksdb.restored_database import RestoredDatabase, has_same_rows
from spark_state.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend

NewBackend = Callable[[RestoredDatabase | None], RocksDBKeyedStateBackend]


def restored_backend(
    key_groups: KeyGroupRange,
    key_columns: KeyColumns,
    forms: Forms,
    home: DatabaseHome,
    restore: BackendRestore,
) -> tuple[RocksDBKeyedStateBackend, tuple[StateHandle, ...]]:
    """Return a backend with all states registered and all entries of the databases, and the files
    still to apply. Raises the errors of DatabaseRestore.backend."""
    databases = DatabaseRestore(restore, home)
    new = partial(RocksDBKeyedStateBackend, key_groups, key_columns, forms, home)
    return databases.backend(new), databases.rest


class DatabaseRestore:
    """The restore of a backend whose database lives in `home`. `rest`: the files still to be
    applied to the backend."""

    def __init__(self, restore: BackendRestore, home: DatabaseHome) -> None:
        self._restore = restore
        self._folder = home.folder
        self._copies = home.copies
        self._databases = sorted(self._fitting(), key=RestoredDatabase.score, reverse=True)
        names = {database.handle.name for database in self._databases}
        self.rest = tuple(handle for handle in restore.handles if handle.name not in names)

    def _fitting(self) -> Iterator[RestoredDatabase]:
        """Yield the databases whose rows have the format of this release."""
        pieces: dict[str, list[StateHandle]] = {}
        for handle in self._restore.handles:
            if handle.kind == "database":
                pieces.setdefault(handle.name, []).append(handle)
        for handle, *others in pieces.values():
            contents = self._restore.source.contents(handle)
            held = [s.descriptor for s in self._restore.states if s.since <= handle.epoch]
            if has_same_rows(contents, held):
                key_groups = [piece.key_groups for piece in (handle, *others)]
                yield RestoredDatabase(
                    handle,
                    contents,
                    tuple(sorted(key_groups, key=_start_of)),
                    frozenset(descriptor.name for descriptor in held),
                    tables_of(handle, contents),
                )

    def backend(self, new: NewBackend) -> RocksDBKeyedStateBackend:
        """Return the backend, with all states registered and all entries of the databases. Raises
        StateHostError when the local disk fails, and the errors of the source."""
        base = self._databases[0] if self._databases else None
        try:
            if base is not None:
                files = self._fetch(base, files_below(self._folder))
                if self._copies is not None:
                    self._copies.keep(files, base.tables)
            backend = new(base)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            for state in self._restore.states:
                backend.open_table(state.descriptor)
            backend.forget_others()
            with closing(self._others()) as others:
                for database, files in others:
                    families = [f for state in database.contents.states for f in state.families]
                    with ReadOnlyDatabase(files, families) as rows:
                        backend.copy(rows, database, self._restore.check)
                    shutil.rmtree(files)
                    self._restore.check()
        except BaseException:
            backend.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return backend

    def _others(self) -> Generator[tuple[RestoredDatabase, Path], None, None]:
        """Yield each database after the first, with the folder of downloaded files. The next
        database is downloaded while the caller uses the current database, so the disk has at most
        two downloaded databases."""
        others = self._databases[1:]
        with ThreadPoolExecutor(1, "cowstate-restore") as ahead:

            def begin(number: int) -> Future[Path]:
                files = self._folder / f"other-{number}"
                return ahead.submit(self._fetch, others[number], files)

            fetching = begin(0) if others else None
            for number, other in enumerate(others, 1):
                assert fetching is not None
                files = fetching.result()
                fetching = begin(number) if number < len(others) else None
                yield other, files

    def _fetch(self, database: RestoredDatabase, files: Path) -> Path:
        try:
            self._restore.source.fetch(
                database.handle,
                database.contents,
                files,
                None if self._copies is None else self._copies.find,
            )
        except OSError as error:
            raise StateHostError(
                f"{database.handle.name} cannot be restored below {self._folder}: {error}. "
                f"{IF_THE_DISK_IS_FULL}"
            ) from error
        self._restore.check()
        return files


def _start_of(key_groups: KeyGroupRange) -> int:
    return key_groups.start
