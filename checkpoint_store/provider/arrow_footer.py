"""The footer of an Arrow IPC file, as far as checksums need the footer. Pure.

pyarrow reads record batches but does not tell their places in the file, nor the places of metadata
values in the footer. This module finds both by walking the footer's flatbuffer:

    Footer    1 schema -> Schema    3 record batches -> [Block]
    Schema    2 custom metadata -> [KeyValue]
    KeyValue  0 key -> string       1 value -> string
    Block     offset, 8 bytes | bytes of the message, 4 | padding, 4 | bytes of the body, 8

A table begins with the distance back to its vtable. The entries of the vtable from the third on are
the places of the fields in the table. A field of type table, vector or string holds the distance to
its content.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SCHEMA, _RECORD_BATCHES = 1, 3
_CUSTOM_METADATA = 2
_KEY, _VALUE = 0, 1
_BLOCK = struct.Struct("<qi4xq")


@dataclass(frozen=True, slots=True)
class Block:
    """The place of a record batch, message and body, in the file, in bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ArrowFooter:
    """The record batches, and the schema's metadata. `value_places`: the place of each metadata
    value in the footer."""

    blocks: tuple[Block, ...]
    metadata: dict[str, str]
    value_places: dict[str, int]


def parse_arrow_footer(footer: bytes) -> ArrowFooter:
    """Parse the flatbuffer of a footer. Raises ValueError if the bytes are not a footer."""
    try:
        return _parse(footer)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not a footer: {error}") from error


def _parse(footer: bytes) -> ArrowFooter:
    root = _uint32(footer, 0)
    schema = _pointed(footer, _field(footer, root, _SCHEMA))
    metadata, places = {}, {}
    for pair in _vector(footer, _field(footer, schema, _CUSTOM_METADATA), 4):
        table = _pointed(footer, pair)
        key, _ = _string(footer, _field(footer, table, _KEY))
        metadata[key], places[key] = _string(footer, _field(footer, table, _VALUE))
    blocks = []
    for place in _vector(footer, _field(footer, root, _RECORD_BATCHES), _BLOCK.size):
        offset, message_bytes, body_bytes = _BLOCK.unpack_from(footer, place)
        blocks.append(Block(offset, message_bytes + body_bytes))
    return ArrowFooter(tuple(blocks), metadata, places)


def _field(data: bytes, table: int, number: int) -> int:
    """The place of a field of a table. Raises ValueError if the table does not have the field."""
    vtable = table - struct.unpack_from("<i", data, _inside(table))[0]
    (vtable_bytes,) = struct.unpack_from("<H", data, _inside(vtable))
    entry = 4 + 2 * number
    distance = 0
    if entry < vtable_bytes:
        (distance,) = struct.unpack_from("<H", data, vtable + entry)
    if distance == 0:
        raise ValueError(f"a table without field {number}")
    return table + distance


def _vector(data: bytes, field: int, size: int) -> range:
    place = _pointed(data, field)
    count = _uint32(data, place)
    if count * size > len(data):
        raise ValueError(f"a vector of {count} elements")
    return range(place + 4, place + 4 + count * size, size)


def _string(data: bytes, field: int) -> tuple[str, int]:
    """A string, and the place of its first byte."""
    place = _pointed(data, field)
    length = _uint32(data, place)
    if place + 4 + length > len(data):
        raise ValueError(f"a string of {length} bytes")
    return data[place + 4 : place + 4 + length].decode(), place + 4


def _pointed(data: bytes, place: int) -> int:
    return place + _uint32(data, place)


def _uint32(data: bytes, place: int) -> int:
    value: int = struct.unpack_from("<I", data, place)[0]
    return value


def _inside(place: int) -> int:
    """Check that a place is not negative, because Python counts negative places from the end."""
    if place < 0:
        raise ValueError("a table before the begin")
    return place
