"""The format of one state's rows in a database and in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpoint_store.files.element_columns import LIST_VALUE, MAP_VALUE
from spark_state.codecs.codec import Forms
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_rows import StateSerializer
from spark_state.rocksdb.ordered_bytes import decode_int, encode_int
from spark_state.rocksdb.packed_values import PackedValues
from spark_state.rocksdb.row_keys import RowKeys
from spark_state.state_descriptor import StateDescriptor

_EXPIRY_BYTES = 8


@dataclass(frozen=True, slots=True)
class StateRowsFormat:
    """The format of one state's rows.

    - `name`: the state's name.
    - `serializer`: converts rows between the table and files.
    - `keys`: converts the keys of rows in the database.
    - `pack`, `unpack`: convert the value of a key or element to the bytes in the database, and
      back.
    - `has_elements`: True if a row for a file is a pair (element, value), False if it is a value.
    """

    name: str
    serializer: StateSerializer[Any]
    keys: RowKeys
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]
    has_elements: bool

    def entry(self, row: bytes, data: bytes) -> tuple[Key, Any]:
        """Convert a row of the database to a row for a file: the key, and (element, value) or the
        value. `row`, `data`: key and value in the database."""
        key, element = self.keys.key_and_element(row)
        value = self.unpack(data)
        return key, (element, value) if self.has_elements else value


def state_rows_format(
    descriptor: StateDescriptor,
    serializer: StateSerializer[Any],
    key_columns: KeyColumns,
    forms: Forms,
) -> StateRowsFormat:
    pack, unpack = _values(descriptor, forms)
    if descriptor.ttl_ms is not None:
        pack, unpack = _expiring(pack, unpack)
    keys = RowKeys(key_columns, descriptor)
    has_elements = descriptor.kind != "value" or descriptor.ttl_ms is not None
    return StateRowsFormat(descriptor.name, serializer, keys, pack, unpack, has_elements)


def _values(
    descriptor: StateDescriptor, forms: Forms
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    match descriptor.kind:
        case "timers":
            return (lambda value: b""), (lambda data: ())
        case "value":
            value_type = descriptor.value_type
        case "list":
            value_type = descriptor.value_type.field(LIST_VALUE).type.value_type
        case "map":
            value_type = descriptor.value_type.field(MAP_VALUE).type.item_type
    packed = PackedValues(value_type, forms)
    return packed.pack, packed.unpack


def _expiring(
    pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any]
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return functions that pack and unpack a value with its expiry time. In the bytes, the time
    comes first."""

    def pack_both(value: tuple[Any, int]) -> bytes:
        return encode_int(value[1]) + pack(value[0])

    def unpack_both(data: bytes) -> tuple[Any, int]:
        return unpack(data[_EXPIRY_BYTES:]), decode_int(data, 0)[0]

    return pack_both, unpack_both
