"""Bytes of a subtask's operator state: a zstd-compressed Arrow IPC stream, and a checksum.

    schema, with our metadata | record batch | end of stream | SHA-256 of all bytes before, 32 bytes

The batch has a row for each item and a column for each state; a column is null in the rows of other
states. A column is a struct with the fields of the state's schema; for a broadcast state, with the
structs `key` and `value`. The items of a state are consecutive rows, in order. The schema's
metadata:

    cowstate.format_version  "1"
    cowstate.kind            "operator_state"
    cowstate.states          [{"name", "mode", "first", "count", "schema"}, ...], JSON

`mode` is "split", "union" or "broadcast". `first` and `count` are the first row and the number of
rows of the items. `schema` is the Arrow IPC schema message of an item, base64.

A new snapshot copies the items; another thread may write the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.state_file import read_options, write_options
from spark_state.operator_state.broadcast_state import BroadcastOperatorState
from spark_state.operator_state.list_operator_state import ListOperatorState
from spark_state.operator_state.meta_info import OperatorStateMetaInfo

FORMAT_VERSION = 1
OperatorState = ListOperatorState | BroadcastOperatorState

_KIND = "operator_state"
_NAME = "operator state"
_CHECKSUM_BYTES = 32


class OperatorStateSnapshot:
    """All states of a backend at one moment."""

    def __init__(self, states: Sequence[OperatorState]) -> None:
        self._states = [(state.meta_info, state.serializer, state.copy_items()) for state in states]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(meta_info.name for meta_info, _, _ in self._states)

    def to_bytes(self) -> bytes:
        """Return the bytes of the snapshot, for `OperatorStateBackend.restore`."""
        rows = sum(len(items) for _, _, items in self._states)
        described, columns, first = [], [], 0
        for meta_info, serializer, items in self._states:
            described.append(_describe(meta_info, first, len(items)))
            column = serializer.to_arrow(items)
            before = pa.nulls(first, column.type)
            after = pa.nulls(rows - first - len(items), column.type)
            columns.append(pa.concat_arrays([before, column, after]))
            first += len(items)
        metadata = {
            "cowstate.format_version": str(FORMAT_VERSION),
            "cowstate.kind": _KIND,
            "cowstate.states": json.dumps(described),
        }
        batch = pa.RecordBatch.from_arrays(columns, names=list(self.names))
        batch = batch.replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=write_options(batch.nbytes)) as writer:
            writer.write_batch(batch)
        stream = sink.getvalue().to_pybytes()
        return stream + hashlib.sha256(stream).digest()


class StoredOperatorState:
    """Snapshot read from bytes. `meta_infos`: descriptions of the states, in the order of
    registration. `whose`: origin of the bytes, for errors. Raises CorruptObjectError for bytes that
    are no snapshot, UnsupportedFormatError for a snapshot of a newer release."""

    def __init__(self, data: bytes, whose: str) -> None:
        stream, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if hashlib.sha256(stream).digest() != checksum:
            problem = f"the SHA-256 of its {len(data)} bytes is wrong"
            raise CorruptObjectError(whose, _NAME, problem)
        try:
            reader = pa.ipc.open_stream(stream, options=read_options(len(data)))
            metadata: dict[bytes, bytes] = reader.schema.metadata or {}
            if metadata[b"cowstate.kind"] != _KIND.encode():
                raise ValueError(f"kind {metadata[b'cowstate.kind']!r}")
            version = int(metadata[b"cowstate.format_version"])
            if version > FORMAT_VERSION:
                raise UnsupportedFormatError(whose, _NAME, version, FORMAT_VERSION)
            described = json.loads(metadata[b"cowstate.states"])
            self.meta_infos = tuple(_meta_info(**state) for state in described)
            self._batch = reader.read_next_batch()
        except (pa.ArrowException, StopIteration, KeyError, TypeError, ValueError) as error:
            raise CorruptObjectError(whose, _NAME, f"not a snapshot: {error!r}") from error

    def items(self, name: str) -> pa.Array[Any] | None:
        """Return the items of a state, as structs; None if the snapshot lacks the state."""
        if all(meta_info.name != name for meta_info in self.meta_infos):
            return None
        return self._batch.column(name).drop_null()


def _describe(meta_info: OperatorStateMetaInfo, first: int, count: int) -> dict[str, Any]:
    schema = pa.schema(list(meta_info.item_type)).serialize().to_pybytes()
    return {
        "name": meta_info.name,
        "mode": meta_info.mode,
        "first": first,
        "count": count,
        "schema": base64.b64encode(schema).decode(),
    }


def _meta_info(name: str, mode: Any, first: int, count: int, schema: str) -> OperatorStateMetaInfo:
    item_type = pa.struct(list(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))))
    return OperatorStateMetaInfo(name, mode, item_type)
