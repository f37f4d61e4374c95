"""The bytes of changelogs and snapshots: one Arrow IPC file, zstd-compressed.

    "ARROW1" | schema, with our metadata | record batch | ... | footer | length | "ARROW1"

Rows are sorted by `_key_group` and then by key, and cut into record batches of at most 65,536 rows.
The schema's metadata describes the file and the key groups of each batch, so a reader of a few key
groups decompresses only the batches of its key groups. A long file is cut at the ends of key groups
where possible, and has one more batch, without rows, which carries an index. With the index a
reader of a few key groups downloads only the bytes of its batches, see state_file_store. The index
has a checksum for each piece of the file, one piece for each record batch with rows. The tail's
checksum is in the handle:

    piece 0                 piece 1              tail
    "ARROW1" schema, batch  batch           ...  batch without rows, with the index; footer "ARROW1"

    cowstate.format_version  "1"
    cowstate.kind            "changelog" | "snapshot"
    cowstate.store_id        the store's id
    cowstate.epoch           decimal
    cowstate.subtask         decimal
    cowstate.key_groups      [first, last], JSON
    cowstate.rows            decimal
    cowstate.batches         [[first key group, last key group, rows], ...], JSON; the last batch
                             has 0 rows in a file with an index
    cowstate.growth          by how many entries key groups grow, see entry_growth; not in all files

Changelogs and snapshots have exactly the same format; only the meaning of rows differs. A row
belongs to the state in `_state`, and puts or deletes a key, according to `_op`. The values are in
the column whose metadata (`cowstate.state`) has the state's name. The reader trusts nothing: length
and checksum are checked first, then the metadata.
"""

from __future__ import annotations

import hashlib
import io
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.entry_growth import noted_growth
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FileTail, StateFileKind, StateHandle

FORMAT_VERSION = 1
KEY_GROUP_COLUMN = "_key_group"
STATE, OP = "_state", "_op"
PUT, DELETE = "put", "delete"
STATE_METADATA = b"cowstate.state"
INDEX_METADATA = b"cowstate.index"
MAX_BATCH_ROWS = 65_536

# Bytes of uncompressed columns from which a file has an index. Reading an index takes a request of
# its own, as long as reading some hundred kilobytes.
INDEXED_BYTES = 1 << 20
# Length from which a batch of a file with an index ends at the next end of a key group.
BATCH_ROWS = 16_384
BATCH_BYTES = 2 << 20

_MOST_BATCH_BYTES = BATCH_BYTES * MAX_BATCH_ROWS // BATCH_ROWS
_PREFIX = "cowstate."
# For fewer bytes, waking Arrow's threads takes longer than the work.
_WORTH_THREADS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StateFileHeader:
    """A state file's description of itself, apart from the rows."""

    kind: StateFileKind
    store_id: str
    epoch: int
    subtask: int
    key_groups: KeyGroupRange


@dataclass(frozen=True, slots=True)
class _BatchEntry:
    """The key groups first..last and the number of rows of one record batch."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """The bytes of a file. `tail`: the tail for the file's handles; None if the file has no
    index."""

    data: bytes
    tail: FileTail | None


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some bytes of a file, from byte `start` on; `checksum`: sha256, hex."""

    start: int
    length: int
    checksum: str

    @property
    def end(self) -> int:
        """The byte after the piece's last byte."""
        return self.start + self.length


def write_options(uncompressed_bytes: int) -> pa.ipc.IpcWriteOptions:
    """Return the options to write columns of `uncompressed_bytes` bytes."""
    use_threads = uncompressed_bytes >= _WORTH_THREADS_BYTES
    return pa.ipc.IpcWriteOptions(compression="zstd", use_threads=use_threads)


def read_options(stored_bytes: int) -> pa.ipc.IpcReadOptions:
    """Return the options to read a file or stream of `stored_bytes` compressed bytes."""
    return pa.ipc.IpcReadOptions(use_threads=stored_bytes >= _WORTH_THREADS_BYTES)


def encode_state_file(table: pa.Table, header: StateFileHeader) -> EncodedFile:
    """Encode the file of `table`. The rows must be sorted by `_key_group` and belong to
    `header.key_groups`."""
    table = table.combine_chunks()
    has_index = table.nbytes >= INDEXED_BYTES
    batches = [*(_cut_batches(table) if has_index else table.to_batches(MAX_BATCH_ROWS))]
    batches = [batch for batch in batches if batch.num_rows]
    entries = [_entry(batch) for batch in batches]
    _check_sorted(table, entries, header.key_groups)
    if has_index:
        entries.append(_BatchEntry(entries[-1].last, entries[-1].last, 0))
    schema = _schema(table, header, entries)
    sink, ends = io.BytesIO(), []
    with pa.ipc.new_file(sink, schema, options=write_options(table.nbytes)) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            ends.append(sink.tell())
        if has_index:
            index = {INDEX_METADATA: index_of(sink.getbuffer(), ends)}
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            writer.write_batch(empty, custom_metadata=index)
    data = sink.getvalue()
    if not has_index:
        return EncodedFile(data, None)
    tail = memoryview(data)[ends[-1] :]
    checksum = hashlib.sha256(tail).hexdigest()
    return EncodedFile(data, FileTail(header.key_groups, len(tail), checksum))


def index_of(data: memoryview, ends: Sequence[int]) -> bytes:
    """Return the index of a file that begins with `data`. `ends`: the end of each piece, in
    bytes."""
    pieces = [
        [end - start, hashlib.sha256(data[start:end]).hexdigest()]
        for start, end in pairwise([0, *ends])
    ]
    return json.dumps(pieces, separators=(",", ":")).encode()


def decode_index(index: bytes) -> list[FilePiece]:
    """Return the pieces of a file. Raises TypeError or ValueError."""
    entries = [(int(length), str(checksum)) for length, checksum in json.loads(index)]
    ends = accumulate(length for length, _ in entries)
    return [
        FilePiece(end - length, length, checksum)
        for end, (length, checksum) in zip(ends, entries, strict=True)
    ]


def _cut_batches(table: pa.Table) -> Iterable[pa.RecordBatch]:
    """Cut a table into batches of about BATCH_ROWS rows or BATCH_BYTES bytes, each up to the end of
    a key group. A key group several times as long as a batch is cut. If rows differ in size and a
    batch has too many bytes, the batch is halved until its bytes fit."""
    rows = min(BATCH_ROWS, max(1, table.num_rows * BATCH_BYTES // table.nbytes))
    most = rows * MAX_BATCH_ROWS // BATCH_ROWS
    lengths: Any = pc.value_counts(table.column(KEY_GROUP_COLUMN)).field("counts")
    ends = [*accumulate(lengths.to_pylist())]
    start = 0
    while start < table.num_rows:
        of_group = bisect_left(ends, min(start + rows, table.num_rows))
        end = min(ends[of_group], start + most)
        while end - start > 1 and table.slice(start, end - start).nbytes > _MOST_BATCH_BYTES:
            end = start + (end - start) // 2
        yield from table.slice(start, end - start).to_batches()
        start = end


def _schema(table: pa.Table, header: StateFileHeader, entries: list[_BatchEntry]) -> pa.Schema:
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "kind": header.kind,
        "store_id": header.store_id,
        "epoch": str(header.epoch),
        "subtask": str(header.subtask),
        "key_groups": json.dumps([header.key_groups.start, header.key_groups.end]),
        "rows": str(table.num_rows),
        "batches": json.dumps([[entry.first, entry.last, entry.rows] for entry in entries]),
    }
    return table.schema.with_metadata(
        {
            **(table.schema.metadata or {}),
            **{f"{_PREFIX}{key}".encode(): value.encode() for key, value in metadata.items()},
        }
    )


class StateFile:
    """A state file in memory, whole or in part, whose metadata agrees with `handle`.

    `url`: the store's URL, for messages. Raises CorruptObjectError, UnsupportedFormatError.
    """

    def __init__(self, data: Any, handle: StateHandle, url: str) -> None:
        self._url = url
        try:
            options = read_options(handle.length)
            self.reader = pa.ipc.open_file(pa.BufferReader(data), options=options)
            self._metadata = _metadata(self.reader.schema)
            version = int(self._metadata["format_version"])
            if version > FORMAT_VERSION:
                raise UnsupportedFormatError(url, handle.name, version, FORMAT_VERSION)
            self._entries = [_BatchEntry(*e) for e in json.loads(self._metadata["batches"])]
            noted_growth(self.reader.schema)  # users of the rows rely on a valid note
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise not_ours(handle, url, error) from error
        self._check(handle)

    def _check(self, handle: StateHandle) -> None:
        batches = self.reader.num_record_batches
        try:
            _check_metadata(self._metadata, self._entries, batches, handle)
        except (KeyError, TypeError, ValueError) as error:
            raise not_ours(handle, self._url, error) from error

    def rows(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """Return the rows of the key groups in both `handle` and `key_groups`, in the file's order.
        `handle` must be a handle of this file."""
        self._check(handle)
        wanted = handle.key_groups.intersection(key_groups)
        return iter(()) if wanted is None else self._batches(wanted)

    def _batches(self, wanted: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        for index in range(len(self._entries)):
            if self.has_rows(index, wanted):
                batch = self.reader.get_batch(index)
                column = batch.column(KEY_GROUP_COLUMN)
                start = _count(pc.less(column, wanted.start))
                yield batch.slice(start, _count(pc.less_equal(column, wanted.end)) - start)

    def has_rows(self, batch: int, key_groups: KeyGroupRange) -> bool:
        """Return True if a batch may have rows of these key groups."""
        entry = self._entries[batch]
        is_of = entry.first <= key_groups.end and key_groups.start <= entry.last
        return bool(entry.rows) and is_of


def not_ours(handle: StateHandle, url: str, error: Exception) -> CorruptObjectError:
    """Return the error for a file without the metadata of a state file."""
    problem = f"not a state file of ours: {error!r}"
    return CorruptObjectError(url, handle.name, problem, handle.epoch)


def _count(condition: Any) -> int:
    return cast(int, pc.sum(condition).as_py())


def _entry(batch: pa.RecordBatch) -> _BatchEntry:
    column = batch.column(KEY_GROUP_COLUMN)
    return _BatchEntry(column[0].as_py(), column[-1].as_py(), batch.num_rows)


def _check_sorted(table: pa.Table, entries: list[_BatchEntry], key_groups: KeyGroupRange) -> None:
    column = table.column(KEY_GROUP_COLUMN)
    assert column.null_count == 0, "a row without a key group"
    if not entries:
        return
    assert entries[0].first in key_groups, f"key group {entries[0].first} is not of {key_groups}"
    assert entries[-1].last in key_groups, f"key group {entries[-1].last} is not of {key_groups}"
    ordered = pc.all(pc.less_equal(column[:-1], column[1:])).as_py()
    assert ordered is not False, "rows are not sorted by key group"


def _metadata(schema: pa.Schema) -> dict[str, str]:
    return {
        key.decode().removeprefix(_PREFIX): value.decode()
        for key, value in (schema.metadata or {}).items()
        if key.startswith(_PREFIX.encode())
    }


def _check_metadata(
    metadata: dict[str, str], entries: list[_BatchEntry], batches: int, handle: StateHandle
) -> None:
    start, end = json.loads(metadata["key_groups"])
    rows = sum(entry.rows for entry in entries)
    stated = (metadata["kind"], int(metadata["epoch"]), int(metadata["rows"]), rows, len(entries))
    expected = (handle.kind, handle.epoch, handle.rows, handle.rows, batches)
    if stated != expected:
        raise ValueError(f"kind, epoch, rows, rows, batches are {stated}, expected {expected}")
    if handle.key_groups.intersection(KeyGroupRange(start, end)) != handle.key_groups:
        raise ValueError(f"key groups are [{start}, {end}], expected {handle.key_groups}")
