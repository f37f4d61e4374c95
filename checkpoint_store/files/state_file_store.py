"""State files in an object store: written from rows to a handle, and read from a handle to rows."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import pyarrow as pa

from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.key_bounds import key_bounds
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.partial_file import read_partially
from checkpoint_store.files.state_file import (
    StateFile,
    StateFileHeader,
    encode_state_file,
    verified_state_file,
)
from checkpoint_store.files.state_file_name import StateFileName
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.named_object import read_named
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.unique_names import unique_of_uuid

_FILES_AHEAD = 8
_DECODING_THREADS = 2
_BYTES_AHEAD = 64 << 20
"""Bytes of files, as they are stored, that are read and not used yet; a longer file is read by
itself. Beside them there is a decoded batch of each that has an index."""


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
        encoded = encode_state_file(rows, header)
        data = encoded.data
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
            tail=encoded.tail,
        )

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """The rows of `handle` that are of `key_groups`. What is needed of the file is read and
        verified at once: all of it, or, where it tells, the bytes of the key groups.

        Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError.
        """
        return self._rows(self._opened([handle], key_groups), handle, key_groups)

    def read_each(
        self, handles: Iterable[StateHandle], key_groups: KeyGroupRange
    ) -> Iterator[tuple[StateHandle, Iterator[pa.RecordBatch]]]:
        """As read, each handle in its turn; use its rows before you ask for the next. A file is
        read once for handles of it that follow one another. Meanwhile the next files are read, and
        the next batch of each is decoded."""
        files = [[*of_name] for _, of_name in groupby(handles, lambda handle: handle.name)]
        if len(files) == 1 and files[0][0].tail is None:
            # To start threads takes longer than to read one short file.
            file = self._opened(files[0], key_groups)
            for handle in files[0]:
                yield handle, self._rows(file, handle, key_groups)
            return
        with closing(self._read_ahead(files, key_groups)) as contents:
            for pieces, (file, first_rows) in zip(files, contents, strict=True):
                for number, handle in enumerate(pieces):
                    if number == 0 and first_rows is not None:
                        yield handle, first_rows
                    else:
                        yield handle, self._rows(file, handle, key_groups)

    def _read_ahead(
        self, files: Sequence[Sequence[StateHandle]], key_groups: KeyGroupRange
    ) -> Generator[_Opened, None, None]:
        """The files, in order, each given by its handles."""
        waiting = deque(files)
        reading: deque[tuple[StateHandle, Future[_Opened]]] = deque()
        with (
            ThreadPoolExecutor(_DECODING_THREADS, "cowstate-decode") as decoding,
            ThreadPoolExecutor(_FILES_AHEAD, "cowstate-read") as pool,
        ):

            def opened(pieces: Sequence[StateHandle]) -> _Opened:
                file = self._opened(pieces, key_groups)
                if file is None:
                    return None, None
                rows = file.rows(pieces[0], key_groups)
                # Batches of a file without an index may be long, and there are up to eight files.
                return file, rows if pieces[0].tail is None else DecodedAhead(rows, decoding)

            try:
                while waiting or reading:
                    while waiting and _may_begin(waiting[0][0], [handle for handle, _ in reading]):
                        pieces = waiting.popleft()
                        reading.append((pieces[0], pool.submit(opened, pieces)))
                    yield reading.popleft()[1].result()
            finally:
                for _, begun in reading:
                    begun.cancel()

    def _opened(self, pieces: Sequence[StateHandle], key_groups: KeyGroupRange) -> StateFile | None:
        """The file of these handles; None for a database, which is read otherwise."""
        handle = pieces[0]
        if handle.kind == "database":
            return None
        wanted = [common for h in pieces if (common := h.key_groups.intersection(key_groups))]
        if handle.tail is None or sum(map(len, wanted)) == len(handle.tail.key_groups):
            data = read_named(self.store, handle.name, handle.epoch)
            return verified_state_file(data, handle, self.store.url)
        return read_partially(self.store, handle, handle.tail, wanted)

    def _rows(
        self, file: StateFile | None, handle: StateHandle, key_groups: KeyGroupRange
    ) -> Iterator[pa.RecordBatch]:
        if file is None:
            return DatabaseFileStore(self.store, self.unique).read(handle, key_groups)
        return file.rows(handle, key_groups)


class DecodedAhead:
    """An iterator over `batches`, the next one of which `decoding` makes while one is used."""

    def __init__(self, batches: Iterator[pa.RecordBatch], decoding: Executor) -> None:
        self._batches = batches
        self._decoding = decoding
        self._next = self._begin()

    def _begin(self) -> Future[pa.RecordBatch | None]:
        return self._decoding.submit(next, self._batches, None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self._next.result()
        if batch is None:
            raise StopIteration
        self._next = self._begin()
        return batch


_Opened = tuple[StateFile | None, Iterator[pa.RecordBatch] | None]
"""A file, None for a database; and the rows of its first handle."""


def _may_begin(handle: StateHandle, begun: Sequence[StateHandle]) -> bool:
    held_bytes = sum(other.length for other in begun)
    is_fitting = len(begun) < _FILES_AHEAD and held_bytes + handle.length <= _BYTES_AHEAD
    return not begun or is_fitting
