"""State files in an object store: written from rows to a handle, and read from a handle to rows."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

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

_FILES_AHEAD = 8
_BYTES_AHEAD = 64 << 20
"""What is held in memory of files that are not used yet; a longer file is read by itself."""


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
        another, and the next ones are read while one is used."""
        files = [[*of_name] for _, of_name in groupby(handles, lambda handle: handle.name)]
        with closing(self._read_ahead([pieces[0] for pieces in files])) as contents:
            for pieces, data in zip(files, contents, strict=True):
                for handle in pieces:
                    if handle.kind == "database":
                        databases = DatabaseFileStore(self.store, self.unique)
                        yield handle, databases.read(handle, key_groups)
                    else:
                        yield handle, decode_state_file(data, handle, key_groups, self.store.url)

    def _read_ahead(self, handles: Sequence[StateHandle]) -> Generator[bytes, None, None]:
        """The bytes of files, in order; nothing for databases, which are read otherwise."""
        if len(handles) == 1:
            yield self._bytes_of(handles[0])
            return
        waiting = deque(handles)
        reading: deque[tuple[StateHandle, Future[bytes]]] = deque()
        with ThreadPoolExecutor(_FILES_AHEAD, "cowstate-read") as pool:
            try:
                while waiting or reading:
                    while waiting and _may_begin(waiting[0], [handle for handle, _ in reading]):
                        handle = waiting.popleft()
                        reading.append((handle, pool.submit(self._bytes_of, handle)))
                    yield reading.popleft()[1].result()
            finally:
                for _, begun in reading:
                    begun.cancel()

    def _bytes_of(self, handle: StateHandle) -> bytes:
        if handle.kind == "database":
            return b""
        return read_named(self.store, handle.name, handle.epoch)


def _may_begin(handle: StateHandle, begun: Sequence[StateHandle]) -> bool:
    held_bytes = sum(other.length for other in begun)
    is_fitting = len(begun) < _FILES_AHEAD and held_bytes + handle.length <= _BYTES_AHEAD
    return not begun or is_fitting
