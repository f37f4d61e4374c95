"""The bytes of changelogs and snapshots: one Arrow IPC file, zstd-compressed.

    "ARROW1" | schema, with our metadata | record batch | ... | footer | length | "ARROW1"

Rows are sorted by `_key_group` and then by key, and cut into record batches of at most 65,536. The
schema's metadata says what the file is, and which key groups each batch holds, so that a reader of
a few key groups decompresses only the batches that have them:

    cowstate.format_version  "1", or "2" if rows are elements or expire, see element_columns
    cowstate.kind            "changelog" | "snapshot"
    cowstate.store_id        the store's id
    cowstate.epoch           decimal
    cowstate.subtask         decimal
    cowstate.key_groups      [first, last], JSON
    cowstate.rows            decimal
    cowstate.batches         [[first key group, last key group, rows], ...], JSON

Changelogs and snapshots share this format whole; they differ in what their rows mean. A row belongs
to the state that `_state` names, and puts or deletes a key, as `_op` says; the values are in the
column whose metadata has that state's name (`cowstate.state`). The reader trusts nothing: length
and checksum first, then the metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.files.element_columns import has_elements
from checkpoint_store.files.ipc_options import read_options, write_options
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateFileKind, StateHandle

FORMAT_VERSION = 2
KEY_GROUP_COLUMN = "_key_group"
STATE, OP = "_state", "_op"
PUT, DELETE = "put", "delete"
STATE_METADATA = b"cowstate.state"
MAX_BATCH_ROWS = 65_536

_PREFIX = "cowstate."


@dataclass(frozen=True, slots=True)
class StateFileHeader:
    """What a state file says of itself, apart from its rows."""

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


def encode_state_file(table: pa.Table, header: StateFileHeader) -> bytes:
    """The file of `table`, which is sorted by `_key_group` and has rows of `header.key_groups`
    only; anything else is a bug of the caller."""
    batches = table.combine_chunks().to_batches(max_chunksize=MAX_BATCH_ROWS)
    entries = [_entry(batch) for batch in batches if batch.num_rows]
    _check_sorted(table, entries, header.key_groups)
    metadata = {
        "format_version": str(_format_version(table.schema)),
        "kind": header.kind,
        "store_id": header.store_id,
        "epoch": str(header.epoch),
        "subtask": str(header.subtask),
        "key_groups": json.dumps([header.key_groups.start, header.key_groups.end]),
        "rows": str(table.num_rows),
        "batches": json.dumps([[entry.first, entry.last, entry.rows] for entry in entries]),
    }
    schema = table.schema.with_metadata(
        {
            **(table.schema.metadata or {}),
            **{f"{_PREFIX}{key}".encode(): value.encode() for key, value in metadata.items()},
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=write_options(table.nbytes)) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()


def decode_state_file(
    data: bytes, handle: StateHandle, key_groups: KeyGroupRange, url: str
) -> Iterator[pa.RecordBatch]:
    """The rows of the key groups that both `handle` and `key_groups` hold, in the file's order.

    Everything is verified before the first batch is returned. `url` is the store's, for messages.
    Raises CorruptObjectError, UnsupportedFormatError.
    """
    source = Source(url, handle.name, handle.epoch)
    if len(data) != handle.length:
        raise _corrupt(source, f"{len(data)} bytes instead of {handle.length}")
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != handle.checksum:
        raise _corrupt(source, f"sha256 {checksum} instead of {handle.checksum}")
    try:
        reader = pa.ipc.open_file(pa.BufferReader(data), options=read_options(len(data)))
        metadata = _metadata(reader.schema)
        version = int(metadata["format_version"])
        if version > FORMAT_VERSION:
            raise UnsupportedFormatError(url, handle.name, version, FORMAT_VERSION)
        entries = [_BatchEntry(*entry) for entry in json.loads(metadata["batches"])]
        _check_metadata(metadata, entries, reader.num_record_batches, handle)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise _corrupt(source, f"not a state file of ours: {error!r}") from error
    wanted = handle.key_groups.intersection(key_groups)
    return iter(()) if wanted is None else _batches(reader, entries, wanted)


def _format_version(schema: pa.Schema) -> int:
    """Older releases read files without elements as they are."""
    structs = (field.type for field in schema if STATE_METADATA in (field.metadata or {}))
    return FORMAT_VERSION if any(map(has_elements, structs)) else 1


def _batches(
    reader: pa.RecordBatchFileReader, entries: list[_BatchEntry], wanted: KeyGroupRange
) -> Iterator[pa.RecordBatch]:
    for index, entry in enumerate(entries):
        if entry.last < wanted.start or entry.first > wanted.end:
            continue
        batch = reader.get_batch(index)
        if wanted.start <= entry.first and entry.last <= wanted.end:
            yield batch
        else:
            yield _rows_of(batch, wanted)


def _rows_of(batch: pa.RecordBatch, wanted: KeyGroupRange) -> pa.RecordBatch:
    column = batch.column(KEY_GROUP_COLUMN)
    start = _count(pc.less(column, pa.scalar(wanted.start)))
    return batch.slice(start, _count(pc.less_equal(column, pa.scalar(wanted.end))) - start)


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


def _corrupt(source: Source, problem: str) -> CorruptObjectError:
    return CorruptObjectError(source.url, source.name, problem, source.epoch)
