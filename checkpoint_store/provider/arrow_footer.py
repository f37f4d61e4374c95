"""The footer of an Arrow IPC file, as far as checksums need it. Pure.

pyarrow reads record batches but does not say where they are in the file, nor where in the footer a
value of the metadata is. Both are found here by walking the footer's flatbuffer:

    Footer    1 schema -> Schema    3 record batches -> [Block]
    Schema    2 custom metadata -> [KeyValue]
    KeyValue  0 key -> string       1 value -> string
    Block     offset, 8 bytes | bytes of the message, 4 | padding, 4 | bytes of the body, 8

A table begins with the distance back to its vtable, whose entries from the third on say where in
the table each field is. A field that is a table, vector or string holds the distance to that.
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
    """Where a record batch, message and body, is in the file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ArrowFooter:
    """The record batches, and the schema's metadata with the place of each value in the footer."""

    blocks: tuple[Block, ...]
    metadata: dict[str, str]
    value_places: dict[str, int]


def parse_arrow_footer(footer: bytes) -> ArrowFooter:
    """The flatbuffer of a footer. Raises ValueError for what is none."""
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
    """Where a field of a table is. Raises ValueError if the table does not have it."""
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
    """Where the elements of a vector are."""
    place = _pointed(data, field)
    count = _uint32(data, place)
    if count * size > len(data):
        raise ValueError(f"a vector of {count} elements")
    return range(place + 4, place + 4 + count * size, size)


def _string(data: bytes, field: int) -> tuple[str, int]:
    """A string, and where its first byte is."""
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
    """A place that does not count from the end, as negative ones do in Python."""
    if place < 0:
        raise ValueError("a table before the begin")
    return place
