"""State files in an object store: written from rows to a handle, and read from a handle to rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.key_bounds import key_bounds
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import StateFileHeader, decode_state_file, encode_state_file
from checkpoint_store.files.state_file_name import StateFileName
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.named_object import read_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.unique_names import unique_of_uuid


@dataclass(frozen=True, slots=True)
class StateFileStore:
    """The state files in `store`. Safe to use from several threads and processes.

    `unique` draws the part of a name that makes it the writer's own: 12 hex digits.
    """

    store: ObjectStore
    unique: Callable[[], str] = unique_of_uuid

    def write(
        self,
        rows: pa.Table,
        header: StateFileHeader,
        directory: str,
        attempt: int,
        bounded: Sequence[str] = (),
    ) -> StateHandle:
        """Write a file of rows sorted by `_key_group`, then key; durable on return. `bounded`: the
        columns whose least and greatest values the handle tells."""
        data = encode_state_file(rows, header)
        name = StateFileName(directory, header.kind, header.subtask, attempt, self.unique())
        self.store.put(str(name), data)
        return StateHandle(
            kind=header.kind,
            name=str(name),
            length=len(data),
            checksum=hashlib.sha256(data).hexdigest(),
            key_groups=header.key_groups,
            epoch=header.epoch,
            rows=rows.num_rows,
            key_bounds=key_bounds(rows, bounded),
        )

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """The rows of `handle` that are of `key_groups`. The file is read and verified at once.

        Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError.
        """
        ((_, batches),) = self.read_each([handle], key_groups)
        return batches

    def read_each(
        self, handles: Iterable[StateHandle], key_groups: KeyGroupRange
    ) -> Iterator[tuple[StateHandle, Iterator[pa.RecordBatch]]]:
        """As read, each handle in its turn. A file is read once for handles of it that follow one
        another."""
        name, data = "", b""
        for handle in handles:
            if handle.kind == "database":
                yield handle, DatabaseFileStore(self.store, self.unique).read(handle, key_groups)
                continue
            if handle.name != name:
                name, data = handle.name, read_named(self.store, handle.name, handle.epoch)
            yield handle, decode_state_file(data, handle, key_groups, self.store.url)
