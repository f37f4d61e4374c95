"""The keys of rows: key group, key, element; or key group, time, key, element. Pure.

    rows of a state   key group (2 bytes)   key   element                      with a packed value
    rows of times     key group (2 bytes)   time (8 bytes)   key   element     with an empty value

A row of times says when an element is due. RocksDB sorts rows by these bytes. So the rows of a
state are sorted by key group, then by key, and the rows of a key are one range. The rows of times
are sorted by key group, then by time, and the due rows of a key group are one range.

The element depends on the kind of state: nothing for a value, a number for lists and timers, a user
key for maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from checkpoint_store.files.element_columns import MAP_VALUE
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns, StoredKeys
from spark_state.rocksdb.key_arrays import can_be_encoded, encoded_keys
from spark_state.rocksdb.ordered_bytes import TupleBytes, decode_int, encode_int
from spark_state.state_descriptor import StateDescriptor

KEY_GROUP_BYTES = 2


class RowKeys:
    """Encoder and decoder for the keys of the rows of one state. `encode_element(element)` returns
    the bytes of an element. `element(row, start)` returns the element whose bytes begin at `start`
    in a row's key."""

    def __init__(self, key_columns: KeyColumns, descriptor: StateDescriptor) -> None:
        self._keys = TupleBytes(key_columns.arrow_types, zoned_as_local=False)
        self._encode_key = self._keys.encode
        self._can_encode_columns = all(map(can_be_encoded, key_columns.arrow_types))
        self.encode_element, self.element = _element(descriptor)

    def of_key(self, key: Key, key_group: int) -> bytes:
        return key_group.to_bytes(KEY_GROUP_BYTES, "big") + self._encode_key(key)

    def of_keys(self, keys: Sequence[Key], key_groups: Sequence[int]) -> list[bytes]:
        """Return for each key the bytes with which all rows of the key begin."""
        if isinstance(keys, StoredKeys) and self._can_encode_columns:
            return encoded_keys(pa.array(key_groups, pa.int32()), keys.columns)
        rows = zip(keys, key_groups, strict=True)
        return [self.of_key(key, key_group) for key, key_group in rows]

    def of_due(self, time_ms: int, of_key: bytes, element: bytes) -> bytes:
        """Return the key of an element's row of times. `of_key`: the bytes with which all rows of
        the grouping key begin. `element`: the bytes of the element."""
        return b"".join(
            (of_key[:KEY_GROUP_BYTES], encode_int(time_ms), of_key[KEY_GROUP_BYTES:], element)
        )

    def key_and_element(self, row: bytes) -> tuple[Key, Any]:
        key, end = self._keys.decode(row, KEY_GROUP_BYTES)
        return key, self.element(row, end)

    def due(self, row: bytes) -> tuple[int, Key, Any]:
        """Return the time, the key and the element of a row of times."""
        time_ms, end = decode_int(row, KEY_GROUP_BYTES)
        key, end = self._keys.decode(row, end)
        return time_ms, key, self.element(row, end)


def of_key_group(key_group: int) -> bytes:
    """Return the bytes with which all rows of a key group begin."""
    return key_group.to_bytes(KEY_GROUP_BYTES, "big")


def key_group_of(row: bytes) -> int:
    return int.from_bytes(row[:KEY_GROUP_BYTES], "big")


def _element(
    descriptor: StateDescriptor,
) -> tuple[Callable[[Any], bytes], Callable[[bytes, int], Any]]:
    """Return the functions that encode and decode an element, which is the last part of a row's
    key."""
    if descriptor.kind == "value":
        return (lambda element: b""), (lambda row, start: ())
    if descriptor.kind in ("list", "timers"):
        return encode_int, (lambda row, start: decode_int(row, start)[0])
    user_key_type = descriptor.value_type.field(MAP_VALUE).type.key_type
    user_keys = TupleBytes([field.type for field in user_key_type], zoned_as_local=True)
    return user_keys.encode, (lambda row, start: user_keys.decode(row, start)[0])
