"""A state file in memory with only the bytes of some key groups.

The tail is read first: the handle has the tail's length and checksum, and the tail has the index.
Then the pieces of the key groups are read and verified, consecutive pieces with one request. The
other bytes lie in memory pages that nobody has written, and unwritten pages take no memory.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import (
    INDEX_METADATA,
    FilePiece,
    StateFile,
    decode_index,
    not_ours,
)
from checkpoint_store.files.state_handle import FileTail, StateHandle
from checkpoint_store.objects.named_object import read_range
from checkpoint_store.objects.object_store import ObjectStore


def read_partially(
    store: ObjectStore, handle: StateHandle, tail: FileTail, key_groups: Sequence[KeyGroupRange]
) -> StateFile:
    """Read the parts of a file that hold the tail and the rows of `key_groups`. The result has no
    other rows, so callers must not read other key groups from the result. Raises
    ObjectMissingError, CorruptObjectError, UnsupportedFormatError."""
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
