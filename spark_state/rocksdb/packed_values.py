"""Values of states as bytes: MessagePack of the fields in order. Pure.

    bool, whole numbers, fractions, text, binary, null     types of MessagePack
    decimal                                                 text: the unscaled number
    date, duration, timestamp                               whole number: days, microseconds, or
                                                            microseconds since 1970
    list, struct                                            array
    map                                                     array of pairs

The bytes contain no names and no types, because all values of a state in a database have the same
schema. Text that is not valid Unicode is packed unchanged; the changelog refuses such text, with
any backend.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa

from spark_state.codecs.codec import Forms
from spark_state.rocksdb.ordered_bytes import micros_of_timestamps

Conversion = Callable[[Any], Any]
_Codec = tuple[Conversion, Conversion] | None
"""Conversions to a type of MessagePack and back; None if MessagePack has the type itself."""

_EXACT = Context(prec=80)
_MICROSECOND = datetime.timedelta(microseconds=1)


class PackedValues:
    """Converter between values of one struct type and bytes. The values have the canonical form of
    states, see serializers."""

    def __init__(self, struct_type: pa.StructType, forms: Forms) -> None:
        codecs = [_codec(field.type, forms) for field in struct_type]
        self._convert = any(codec is not None for codec in codecs)
        self._to_plain = [_or_null(codec, 0) for codec in codecs]
        self._from_plain = [_or_null(codec, 1) for codec in codecs]
        self._pack = msgpack.Packer(unicode_errors="surrogatepass").pack

    def pack(self, value: tuple[Any, ...]) -> bytes:
        if self._convert:
            value = _converted(self._to_plain, value)
        packed: bytes = self._pack(value)
        return packed

    def unpack(self, data: bytes) -> tuple[Any, ...]:
        """Return the value of the bytes, the inverse of `pack`."""
        value: tuple[Any, ...] = msgpack.unpackb(
            data, use_list=False, unicode_errors="surrogatepass", strict_map_key=False
        )
        if self._convert:
            return _converted(self._from_plain, value)
        return value


def _converted(converts: Sequence[Conversion], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([convert(value) for convert, value in zip(converts, values, strict=True)])


def _or_null(codec: _Codec, direction: int) -> Conversion:
    if codec is None:
        return lambda value: value
    convert = codec[direction]
    return lambda value: None if value is None else convert(value)


def _codec(arrow_type: Any, forms: Forms) -> _Codec:
    types = pa.types
    if types.is_decimal(arrow_type):
        return _decimal(arrow_type.scale)
    if types.is_date32(arrow_type):
        return datetime.date.toordinal, datetime.date.fromordinal
    if types.is_timestamp(arrow_type):
        return micros_of_timestamps(arrow_type.tz, zoned_as_local=True)
    if types.is_duration(arrow_type):
        return (
            lambda value: value // _MICROSECOND,
            lambda micros: datetime.timedelta(microseconds=micros),
        )
    if types.is_list(arrow_type):
        return _list(_codec(arrow_type.value_type, forms))
    if types.is_map(arrow_type):
        return _map(_codec(arrow_type.key_type, forms), _codec(arrow_type.item_type, forms))
    if types.is_struct(arrow_type):
        return _struct(arrow_type, forms)
    return None


def _decimal(scale: int) -> _Codec:
    return (
        lambda value: str(int(value.scaleb(scale, _EXACT))),
        lambda units: Decimal(units).scaleb(-scale, _EXACT),
    )


def _list(element: _Codec) -> _Codec:
    to_plain, from_plain = _or_null(element, 0), _or_null(element, 1)
    return (lambda values: [*map(to_plain, values)]), (lambda plain: [*map(from_plain, plain)])


def _map(key: _Codec, item: _Codec) -> _Codec:
    key_to_plain, item_to_plain = _or_null(key, 0), _or_null(item, 0)
    key_from_plain, item_from_plain = _or_null(key, 1), _or_null(item, 1)
    return (
        lambda entries: [(key_to_plain(k), item_to_plain(v)) for k, v in entries.items()],
        lambda pairs: {key_from_plain(k): item_from_plain(v) for k, v in pairs},
    )


def _struct(struct_type: pa.StructType, forms: Forms) -> _Codec:
    names = tuple(field.name for field in struct_type)
    codecs = [_codec(field.type, forms) for field in struct_type]
    to_plain = [_or_null(codec, 0) for codec in codecs]
    from_plain = [_or_null(codec, 1) for codec in codecs]
    make_row = forms.make_row
    return (
        lambda row: _converted(to_plain, row),
        lambda plain: make_row(names, _converted(from_plain, plain)),
    )
