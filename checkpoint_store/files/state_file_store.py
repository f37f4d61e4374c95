"""State files in an object store: writes rows and returns a handle; reads the rows of a handle.

A file with an index may be read in part, for some key groups. The tail is read first: the handle
has the tail's length and checksum, and the tail has the index. Then the pieces of the key groups
are read and verified, consecutive pieces with one request. The pieces are put into a buffer as long
as the whole file. The buffer's pages without bytes of a piece take no memory.
"""

from __future__ import annotations

import hashlib
import mmap
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import pyarrow as pa

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.epoch_file_name import EpochFileName
from checkpoint_store.files.key_bounds import key_bounds
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import (
    INDEX_METADATA,
    FilePiece,
    StateFile,
    StateFileHeader,
    decode_index,
    encode_state_file,
    not_ours,
)
from checkpoint_store.files.state_handle import FileTail, StateHandle
from checkpoint_store.objects.named_object import read_range, read_verified, unique_of_uuid
from checkpoint_store.objects.object_store import ObjectStore

_FILES_AHEAD = 8
_DECODING_THREADS = 2
_BYTES_AHEAD = 64 << 20
"""Stored bytes of files that are read and not used yet; a longer file is read alone. In addition
memory holds a decoded batch of each file with an index."""


@dataclass(frozen=True, slots=True)
class StateFileStore:
    """The state files in `store`. Safe to use from several threads and processes."""

    store: ObjectStore

    def write(
        self,
        rows: pa.Table,
        header: StateFileHeader,
        directory: str,
        attempt: int,
        bounded: Sequence[str] = (),
    ) -> StateHandle:
        """Write a file of rows sorted by `_key_group`, then key; durable on return. `bounded`: the
        columns whose least and greatest values the handle records."""
        encoded = encode_state_file(rows, header)
        data = encoded.data
        name = EpochFileName(directory, header.kind, header.subtask, attempt, unique_of_uuid())
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
        """Read the rows of `handle` in `key_groups`. All needed bytes are read and verified before
        the first row is returned. With an index, only the bytes of the key groups are needed;
        without an index, the whole file.

        Raises ObjectMissingError, CorruptObjectError, UnsupportedFormatError.
        """
        return self._rows(self._opened([handle], key_groups), handle, key_groups)

    def read_each(
        self, handles: Iterable[StateHandle], key_groups: KeyGroupRange
    ) -> Iterator[tuple[StateHandle, Iterator[pa.RecordBatch]]]:
        """Read each handle in turn, as `read` does. The caller uses the rows of a handle before
        asking for the next handle. Consecutive handles of one file share one read of the file.

        While the caller uses rows, threads read the next files, and decode the next batch of each
        file with an index.
        """
        files = [[*of_name] for _, of_name in groupby(handles, lambda handle: handle.name)]
        if len(files) == 1 and files[0][0].tail is None:
            # Starting threads takes longer than reading one short file.
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
        """Return the files, in order, together with the rows of each file's first handle. `files`:
        the handles of each file."""
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
                # Batches of a file without an index may be long, and up to eight files are open.
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
        """Open the file of these handles. Return None for a database, which has another reader."""
        handle = pieces[0]
        if handle.kind == "database":
            return None
        wanted = [common for h in pieces if (common := h.key_groups.intersection(key_groups))]
        if handle.tail is None or sum(map(len, wanted)) == len(handle.tail.key_groups):
            verified = handle.name, handle.epoch, handle.length, handle.checksum
            return StateFile(read_verified(self.store, *verified), handle, self.store.url)
        return _read_partially(self.store, handle, handle.tail, wanted)

    def _rows(
        self, file: StateFile | None, handle: StateHandle, key_groups: KeyGroupRange
    ) -> Iterator[pa.RecordBatch]:
        if file is None:
            return DatabaseFileStore(self.store).read(handle, key_groups)
        return file.rows(handle, key_groups)


class DecodedAhead:
    """Iterator over `batches`. While the caller uses one batch, `decoding` makes the next batch."""

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
"""A file and the rows of its first handle; both None for a database."""


def _may_begin(handle: StateHandle, begun: Sequence[StateHandle]) -> bool:
    held_bytes = sum(other.length for other in begun)
    is_fitting = len(begun) < _FILES_AHEAD and held_bytes + handle.length <= _BYTES_AHEAD
    return not begun or is_fitting


def _read_partially(
    store: ObjectStore, handle: StateHandle, tail: FileTail, key_groups: Sequence[KeyGroupRange]
) -> StateFile:
    """Read the parts of a file that hold the tail and the rows of `key_groups`. The result has no
    other rows, so callers must not read other key groups from the result."""
    memory = mmap.mmap(-1, handle.length)
    start = handle.length - tail.length
    _read_pieces(store, handle, [FilePiece(start, tail.length, tail.checksum)], memory)
    file = StateFile(pa.py_buffer(memory), handle, store.url)
    pieces = _pieces(file, handle, start, store.url)

    def is_needed(batch: int) -> bool:
        return any(file.has_rows(batch, of_handle) for of_handle in key_groups)

    for needed, run in groupby(enumerate(pieces), lambda numbered: is_needed(numbered[0])):
        if needed:
            _read_pieces(store, handle, [piece for _, piece in run], memory)
    return file


def _pieces(file: StateFile, handle: StateHandle, end: int, url: str) -> list[FilePiece]:
    try:
        last = file.reader.num_record_batches - 1
        metadata = file.reader.get_batch_with_custom_metadata(last).custom_metadata
        pieces = decode_index(metadata[INDEX_METADATA])
        if (len(pieces), pieces[-1].end) != (last, end):
            raise ValueError(f"an index of {len(pieces)} pieces to byte {pieces[-1].end}")
    except (pa.ArrowException, IndexError, KeyError, TypeError, ValueError) as error:
        raise not_ours(handle, url, error) from error
    return pieces


def _read_pieces(
    store: ObjectStore, handle: StateHandle, pieces: Sequence[FilePiece], memory: mmap.mmap
) -> None:
    """Read consecutive pieces with one request, and verify each piece."""
    first, length = pieces[0].start, pieces[-1].end - pieces[0].start
    data = memoryview(read_range(store, handle.name, handle.epoch, first, length))
    for piece in pieces:
        checksum = hashlib.sha256(data[piece.start - first : piece.end - first]).hexdigest()
        if checksum != piece.checksum:
            problem = f"sha256 {checksum} instead of {piece.checksum} from byte {piece.start} on"
            raise CorruptObjectError(store.url, handle.name, problem, handle.epoch)
    memory[first : first + length] = data
