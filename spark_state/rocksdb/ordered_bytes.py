"""Keys as bytes that sort in the order of the keys. Pure.

RocksDB sorts rows by the bytes of their keys. So the rows of a key group are one range, and so are
the rows of a key. The user keys of a map come in order: field by field, null first, NaN last.

    field            1 byte: 0 null, 1 a value; then the value
    bool             1 byte
    whole number     8 bytes, big-endian, sign bit flipped
    fraction         8 bytes, big-endian; sign bit flipped, below zero all bits flipped
    decimal          16 bytes: the unscaled number as a whole number
    date             4 bytes: days, as a whole number
    timestamp        8 bytes: microseconds since 1970, in UTC if the type has a zone
    duration         8 bytes: microseconds
    text, binary     the bytes with 00 replaced by 00 FF, then 00 00
    list             for each element a byte 1 and a field, then a byte 0
    struct           all fields, one after the other

No key is the beginning of another key, so the end of a key within a row is found without a length.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]
"""(row, start of the value) -> (value, end of the value)."""

_NULL, _VALUE = b"\x00", b"\x01"
_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1
_DECIMAL_SIGN = 1 << 127
_EXACT = Context(prec=80)
_EPOCH = datetime.datetime(1970, 1, 1)
_UTC_EPOCH = _EPOCH.replace(tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class TupleBytes:
    """Encoder and decoder for tuples of values of `arrow_types`. Structs and lists in a tuple are
    tuples, too.

    `zoned_as_local`: the Python form of timestamps whose Arrow type has a time zone. True: naive,
    in the local time zone, as in states and user keys. False: aware, in the zone of the type, as in
    grouping keys.
    """

    def __init__(self, arrow_types: Sequence[pa.DataType], zoned_as_local: bool) -> None:
        fields = [_field(arrow_type, zoned_as_local) for arrow_type in arrow_types]
        self._encoders = [encode for encode, _ in fields]
        self._decoders = [decode for _, decode in fields]

    def encode(self, values: tuple[Any, ...]) -> bytes:
        encoders = self._encoders
        if len(encoders) == 1:
            return encoders[0](values[0])
        return b"".join([encode(value) for encode, value in zip(encoders, values, strict=True)])

    def decode(self, data: bytes, start: int) -> tuple[tuple[Any, ...], int]:
        """Decode the tuple whose bytes begin at `start`. Return the tuple and the end of its
        bytes."""
        values = []
        for decode in self._decoders:
            value, start = decode(data, start)
            values.append(value)
        return tuple(values), start


def encode_int(value: int) -> bytes:
    """Return the bytes of a whole number of 64 bits."""
    return (value + _SIGN).to_bytes(8, "big")


def decode_int(data: bytes, start: int) -> tuple[int, int]:
    """Decode the whole number whose bytes begin at `start`. Return the number and the end of its
    bytes."""
    end = start + 8
    return int.from_bytes(data[start:end], "big") - _SIGN, end


def _field(arrow_type: Any, zoned_as_local: bool) -> tuple[Encode, Decode]:
    """Return the functions that encode and decode a nullable value of this type."""
    encode_value, decode_value = _value(arrow_type, zoned_as_local)

    def encode(value: Any) -> bytes:
        return _NULL if value is None else _VALUE + encode_value(value)

    def decode(data: bytes, start: int) -> tuple[Any, int]:
        if data[start] == _NULL[0]:
            return None, start + 1
        return decode_value(data, start + 1)

    return encode, decode


def _value(arrow_type: Any, zoned_as_local: bool) -> tuple[Encode, Decode]:
    types = pa.types
    if types.is_boolean(arrow_type):
        return (lambda value: b"\x01" if value else b"\x00"), _decode_bool
    if types.is_integer(arrow_type):
        return encode_int, decode_int
    if types.is_floating(arrow_type):
        return _encode_float, _decode_float
    if types.is_string(arrow_type) or types.is_large_string(arrow_type):
        return _encode_text, _decode_text
    if types.is_binary(arrow_type) or types.is_large_binary(arrow_type):
        return _encode_binary, _decode_binary
    if types.is_decimal(arrow_type):
        return _decimal(arrow_type.scale)
    if types.is_date32(arrow_type):
        return _encode_date, _decode_date
    if types.is_timestamp(arrow_type):
        return _timestamp(arrow_type.tz, zoned_as_local)
    if types.is_duration(arrow_type):
        return _encode_duration, _decode_duration
    if types.is_null(arrow_type):
        return (lambda value: b""), (lambda data, start: (None, start))
    if types.is_list(arrow_type):
        return _list(_field(arrow_type.value_type, zoned_as_local))
    assert types.is_struct(arrow_type), f"keys of type {arrow_type} are refused when they are met"
    fields = TupleBytes([field.type for field in arrow_type], zoned_as_local)
    return fields.encode, fields.decode


def _decode_bool(data: bytes, start: int) -> tuple[bool, int]:
    return data[start] == 1, start + 1


def _encode_float(value: float) -> bytes:
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return struct.pack(">Q", bits ^ (_ALL_BITS if bits & _SIGN else _SIGN))


def _decode_float(data: bytes, start: int) -> tuple[float, int]:
    (bits,) = struct.unpack_from(">Q", data, start)
    bits ^= _SIGN if bits & _SIGN else _ALL_BITS
    (value,) = struct.unpack(">d", struct.pack(">Q", bits))
    # Frozen keys contain only this NaN object; see frozen_keys.
    return (math.nan if value != value else value), start + 8


def _encode_binary(value: bytes) -> bytes:
    return value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _decode_binary(data: bytes, start: int) -> tuple[bytes, int]:
    end = data.index(b"\x00", start)
    while data[end + 1] == 0xFF:
        end = data.index(b"\x00", end + 2)
    return data[start:end].replace(b"\x00\xff", b"\x00"), end + 2


def _encode_text(value: str) -> bytes:
    # Invalid text passes here. Writing the changes of the epoch refuses invalid text in all values.
    return _encode_binary(value.encode("utf-8", "surrogatepass"))


def _decode_text(data: bytes, start: int) -> tuple[str, int]:
    value, end = _decode_binary(data, start)
    return value.decode("utf-8", "surrogatepass"), end


def _decimal(scale: int) -> tuple[Encode, Decode]:
    def encode(value: Decimal) -> bytes:
        units = int(value.scaleb(scale, _EXACT))
        return (units + _DECIMAL_SIGN).to_bytes(16, "big")

    def decode(data: bytes, start: int) -> tuple[Decimal, int]:
        units = int.from_bytes(data[start : start + 16], "big") - _DECIMAL_SIGN
        return Decimal(units).scaleb(-scale, _EXACT), start + 16

    return encode, decode


def _encode_date(value: datetime.date) -> bytes:
    return value.toordinal().to_bytes(4, "big")


def _decode_date(data: bytes, start: int) -> tuple[datetime.date, int]:
    end = start + 4
    return datetime.date.fromordinal(int.from_bytes(data[start:end], "big")), end


def _encode_duration(value: datetime.timedelta) -> bytes:
    return encode_int(value // _MICROSECOND)


def _decode_duration(data: bytes, start: int) -> tuple[datetime.timedelta, int]:
    micros, end = decode_int(data, start)
    return datetime.timedelta(microseconds=micros), end


def _timestamp(zone: str | None, zoned_as_local: bool) -> tuple[Encode, Decode]:
    to_micros, from_micros = micros_of_timestamps(zone, zoned_as_local)

    def encode(value: datetime.datetime) -> bytes:
        return encode_int(to_micros(value))

    def decode(data: bytes, start: int) -> tuple[datetime.datetime, int]:
        micros, end = decode_int(data, start)
        return from_micros(micros), end

    return encode, decode


def micros_of_timestamps(
    zone: str | None, zoned_as_local: bool
) -> tuple[Callable[[datetime.datetime], int], Callable[[int], datetime.datetime]]:
    """Return two functions: from timestamps to microseconds since 1970, and back. `zone`: time zone
    of the Arrow type, None without a zone; `zoned_as_local`: see TupleBytes."""
    if zone is None:
        return (
            lambda value: (value - _EPOCH) // _MICROSECOND,
            lambda micros: _EPOCH + datetime.timedelta(microseconds=micros),
        )

    def to_micros(value: datetime.datetime) -> int:
        return (value.astimezone(datetime.UTC) - _UTC_EPOCH) // _MICROSECOND

    if zoned_as_local:
        return to_micros, _local_of_micros
    of_zone = pa.lib.string_to_tzinfo(zone)

    def from_micros(micros: int) -> datetime.datetime:
        utc = _UTC_EPOCH + datetime.timedelta(microseconds=micros)
        return utc.astimezone(of_zone)

    return to_micros, from_micros


def _local_of_micros(micros: int) -> datetime.datetime:
    utc = _UTC_EPOCH + datetime.timedelta(microseconds=micros)
    return utc.astimezone().replace(tzinfo=None)


def _list(element: tuple[Encode, Decode]) -> tuple[Encode, Decode]:
    encode_element, decode_element = element

    def encode(values: Sequence[Any]) -> bytes:
        return b"".join([_VALUE + encode_element(value) for value in values]) + _NULL

    def decode(data: bytes, start: int) -> tuple[tuple[Any, ...], int]:
        values = []
        while data[start] == _VALUE[0]:
            value, start = decode_element(data, start + 1)
            values.append(value)
        return tuple(values), start + 1

    return encode, decode
