"""The frames of the conversation between the state store provider and its gateway.

    executor's JVM                                   gateway
    {"do": "open", "format": 1, "url": …,
     "options": {…}, "retry_seconds": 120}      ->
                                                <-   {}
    {"do": "put", "name": "state/0/3/…"},
    the object                                  ->
                                                <-   {}, or {"error": …, "message": …}
    the next request                            ->

A frame has a header (a JSON object) and a body of bytes. Numbers are big endian:

    byte 0   length of the header (4 bytes) | header (UTF-8) | length of the body (8) | body

A connection has one request under way at a time. The first request opens the store of the
connection. For further requests see `stored_objects`. The socket is in a directory that only this
user can enter. Both ends must belong to the same release: the gateway refuses a jar with another
`format`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

FORMAT = 1
MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 1 << 30
_HEADER_LENGTH = struct.Struct(">I")
_BODY_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Frame:
    """A request or an answer."""

    header: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


def write_frame(stream: BinaryIO, frame: Frame) -> None:
    header = json.dumps(frame.header).encode()
    stream.write(_HEADER_LENGTH.pack(len(header)) + header + _BODY_LENGTH.pack(len(frame.body)))
    stream.write(frame.body)
    stream.flush()


def read_frame(stream: BinaryIO) -> Frame:
    """Read a frame. Raises EOFError when the peer is gone, and ValueError for bytes that form no
    frame: the connection is useless from then on."""
    (length,) = _HEADER_LENGTH.unpack(_read_exactly(stream, _HEADER_LENGTH.size))
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes, more than {MAX_HEADER_BYTES}")
    header = json.loads(_read_exactly(stream, length))
    if not isinstance(header, dict):
        raise ValueError("a header that is not a JSON object")
    (size,) = _BODY_LENGTH.unpack(_read_exactly(stream, _BODY_LENGTH.size))
    if size > MAX_BODY_BYTES:
        raise ValueError(f"a body of {size} bytes, more than {MAX_BODY_BYTES}")
    return Frame(header, _read_exactly(stream, size))


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("the other end closed the connection")
    return data
