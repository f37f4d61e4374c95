"""Databases in an object store: uploads a database from a local directory, and fetches it again.

Each table of the database becomes an object, and one more object describes the database. The
StateHandle of the database names all these objects. A table never changes, so a table is uploaded
once, and all snapshots that contain the table share the object.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from checkpoint_store.files.database_contents import (
    DatabaseContents,
    decode_database,
    encode_database,
)
from checkpoint_store.files.database_readers import database_reader
from checkpoint_store.files.document import Source
from checkpoint_store.files.epoch_file_name import NamedKind
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle
from checkpoint_store.files.working_directory import (
    telling_what_the_disk_refuses,
    working_directory,
)
from checkpoint_store.objects.named_object import read_verified
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.parallel_requests import in_parallel

# Each table is in memory during its transfer.
_TABLES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class DatabaseFileStore:
    """The databases in `store`. Safe to use from several threads and processes."""

    store: ObjectStore

    def write(
        self,
        folder: Path,
        contents: DatabaseContents,
        uploaded: Mapping[str, FilePart],
        epoch: int,
        new_name: Callable[[NamedKind], str],
    ) -> StateHandle:
        """Write the database in `folder`, durable on return. `contents.tables` names the tables.
        `uploaded`: the tables that are already in the store, by their local names. `new_name`:
        makes the name of an object. Raises OSError if a local file cannot be read."""
        missing = [table for table in contents.tables if table not in uploaded]
        parts = in_parallel(
            lambda table: self._upload((folder / table).read_bytes(), new_name("table")),
            missing,
            _TABLES_AT_ONCE,
        )
        in_store = {**uploaded, **dict(zip(missing, parts, strict=True))}
        described = self._upload(encode_database(contents), new_name("database"))
        return StateHandle(
            kind="database",
            name=described.name,
            length=described.length,
            checksum=described.checksum,
            key_groups=contents.key_groups,
            epoch=epoch,
            rows=sum(count for state in contents.states for _, count in state.entries),
            parts=tuple(in_store[table] for table in contents.tables),
        )

    def _upload(self, data: bytes, name: str) -> FilePart:
        self.store.put(name, data)
        return FilePart(name, len(data), hashlib.sha256(data).hexdigest())

    def contents(self, handle: StateHandle) -> DatabaseContents:
        """Read the description of a database. Raises ObjectMissingError, CorruptObjectError,
        UnsupportedFormatError."""
        described = FilePart(handle.name, handle.length, handle.checksum)
        data = self._verified(described, handle.epoch)
        source = Source(self.store.url, handle.name, handle.epoch)
        contents = decode_database(data, source)
        if len(contents.tables) != len(handle.parts):
            problem = f"{len(contents.tables)} tables, but its handle has {len(handle.parts)}"
            raise source.corrupt(problem)
        return contents

    def fetch(
        self,
        handle: StateHandle,
        contents: DatabaseContents,
        folder: Path,
        local_copy: Callable[[FilePart], Path | None] | None = None,
    ) -> None:
        """Make `folder`, and put all files of a database into the folder. `local_copy`: finds a
        whole copy of a part on the same disk; the copy is linked, and the part is not downloaded.
        Raises ObjectMissingError, CorruptObjectError, and OSError if a file cannot be written."""
        folder.mkdir(parents=True)
        for name, data in contents.small_files.items():
            (folder / name).write_bytes(data)

        def download(table: str, part: FilePart) -> None:
            held = None if local_copy is None else local_copy(part)
            if held is None or not _is_linked(held, folder / table):
                (folder / table).write_bytes(self._verified(part, handle.epoch))

        tables = zip(contents.tables, handle.parts, strict=True)
        in_parallel(lambda table: download(*table), tables, _TABLES_AT_ONCE)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """Read the rows of `handle` in `key_groups`, in the form of rows in state files. All files
        are downloaded and verified before the first row. Raises WorkingDirectoryError, and the
        errors of `contents`, `database_reader` and the store."""
        wanted = handle.key_groups.intersection(key_groups)
        if wanted is None:
            return
        contents = self.contents(handle)
        source = Source(self.store.url, handle.name, handle.epoch)
        read_database = database_reader(contents, source)
        with working_directory(self.store.url, handle.name) as directory:
            folder = directory / "database"
            with telling_what_the_disk_refuses(self.store.url, handle.name):
                self.fetch(handle, contents, folder)
            yield from read_database(folder, source, contents, wanted)

    def _verified(self, part: FilePart, epoch: int) -> bytes:
        return read_verified(self.store, part.name, epoch, part.length, part.checksum)


def _is_linked(path: Path, link: Path) -> bool:
    """Link a local copy. Return False if the copy's owner has removed the copy, or if the copy is
    on another disk."""
    try:
        os.link(path, link)
    except OSError:
        return False
    return True


def tables_of(handle: StateHandle, contents: DatabaseContents) -> dict[str, FilePart]:
    """Return the parts of a database by their local names."""
    return dict(zip(contents.tables, handle.parts, strict=True))
