"""The restore of a backend from RocksDB databases in a store, without decoding the rows.

The database with the best `score` becomes the backend's own database: the restore downloads its
files and deletes the rows of other key groups as ranges, at no cost per row. After a change of
parallelism, further databases may have key groups of this subtask. The restore downloads these
databases one after another, and copies their rows as bytes, as Flink's
RocksDBIncrementalRestoreOperation does. If a schema or the format of rows has changed since
a database was written, the restore leaves the database out, and the caller must read the rows one
by one.

Flink begins with an empty database unless the subtask needs at least three quarters of the key
groups of some database, because deleted rows stay in the files for a time. Here the best database
is always taken: copying the rows of half a database costs more than deleting the other half.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from operator import attrgetter
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


def restored_backend(
    key_groups: KeyGroupRange,
    key_columns: KeyColumns,
    forms: Forms,
    home: DatabaseHome,
    restore: BackendRestore,
) -> tuple[RocksDBKeyedStateBackend, tuple[StateHandle, ...]]:
    """Restore a backend from the databases of `restore`. Return the backend, in which all states of
    `restore` are registered, and the handles of the files that the caller must still apply.

    `home`: place and settings of the backend's database. Raises StateHostError if the local disk
    fails, and the errors of `restore.source`.
    """
    databases = sorted(_fitting(restore), key=RestoredDatabase.score, reverse=True)
    base = databases[0] if databases else None
    fetch = partial(_fetch, restore, home)
    with ExitStack() as on_error:
        on_error.callback(shutil.rmtree, home.folder, ignore_errors=True)
        if base is not None:
            files = fetch(base, files_below(home.folder))
            if home.copies is not None:
                home.copies.keep(files, base.tables)
        backend = RocksDBKeyedStateBackend(key_groups, key_columns, forms, home, base)
        on_error.callback(backend.close)
        for state in restore.states:
            backend.open_table(state.descriptor)
        backend.forget_others()
        for database in databases[1:]:
            files = fetch(database, home.folder / "other")
            families = [f for state in database.contents.states for f in state.families]
            with ReadOnlyDatabase(files, families) as rows:
                backend.copy(rows, database, restore.check)
            shutil.rmtree(files)
            restore.check()
        on_error.pop_all()
    names = {database.handle.name for database in databases}
    return backend, tuple(handle for handle in restore.handles if handle.name not in names)


def _fitting(restore: BackendRestore) -> Iterator[RestoredDatabase]:
    """Yield the databases that hold rows as this release would write them."""
    pieces: dict[str, list[StateHandle]] = {}
    for handle in restore.handles:
        if handle.kind == "database":
            pieces.setdefault(handle.name, []).append(handle)
    for handle, *others in pieces.values():
        contents = restore.source.contents(handle)
        held = [s.descriptor for s in restore.states if s.since <= handle.epoch]
        if has_same_rows(contents, held):
            key_groups = [piece.key_groups for piece in (handle, *others)]
            yield RestoredDatabase(
                handle,
                contents,
                tuple(sorted(key_groups, key=attrgetter("start"))),
                frozenset(descriptor.name for descriptor in held),
                tables_of(handle, contents),
            )


def _fetch(
    restore: BackendRestore, home: DatabaseHome, database: RestoredDatabase, files: Path
) -> Path:
    find = None if home.copies is None else home.copies.find
    try:
        restore.source.fetch(database.handle, database.contents, files, find)
    except OSError as error:
        raise StateHostError(
            f"{database.handle.name} cannot be restored below {home.folder}: {error}. "
            f"{IF_THE_DISK_IS_FULL}"
        ) from error
    restore.check()
    return files
