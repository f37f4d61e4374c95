"""Codec of a type, and the codecs of nested types.

`Forms` holds the differences between values in state and values of output rows. `codec_of` takes
the codecs of types without children from `Forms`, and builds the codecs of lists, maps and structs
from the codecs of their children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_state.errors import StateValueError

Convert = Callable[[Any], Any]
MakeRow = Callable[[tuple[str, ...], tuple[Any, ...]], Any]
Pairs = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Codec:
    """Functions that check, write and read the values of one Arrow type.

    - `convert`: checks a value and converts it to the canonical form. Raises TypeError or
      ValueError for a value that does not fit; returns None for a missing value, such as
      `pandas.NA`.
    - `exact`: Python type whose instances need no conversion; None if every value needs conversion.
    - `mutable`: True if values in the canonical form can change in place.
    - `to_arrow`, `from_arrow`: convert a value before it is written to Arrow, and after it is read;
      None if Arrow's own conversion gives the right form.
    """

    convert: Convert
    exact: type | None = None
    mutable: bool = False
    to_arrow: Convert | None = None
    from_arrow: Convert | None = None


@dataclass(frozen=True, slots=True)
class Forms:
    """Python forms of values, different in state and in output.

    - `make_row(names, values)`: builds a nested struct.
    - `scalar(type)`: returns the codec of a type without children; None if there is no codec.
    - `make_map(pairs)`: builds a map from converted entries.
    - `values_of(struct, names)`: returns the values of a struct's fields, in order.
    - `is_null(value)`: returns True for a null in the place of a list, a map or a struct.
    """

    make_row: MakeRow
    scalar: Callable[[pa.DataType], Codec | None]
    make_map: Callable[[Pairs], Any]
    values_of: Callable[[Any, tuple[str, ...]], Sequence[Any]]
    is_null: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ScalarCodecs:
    """Codecs of types without children, for `Forms.scalar`. `integer(bits)`, `decimal(type)`: make
    the codecs of numbers. `naive`, `zoned`: codecs of timestamps without and with a zone. `others`:
    codecs of all other types, each with a function that recognises the type."""

    integer: Callable[[int], Codec]
    decimal: Callable[[Any], Codec]
    naive: Codec
    zoned: Codec
    others: Sequence[tuple[Callable[[Any], bool], Codec]]

    def __call__(self, value_type: Any) -> Codec | None:
        """Return the codec of a type; None if there is no codec."""
        if pa.types.is_integer(value_type):
            return self.integer(value_type.bit_width)
        if pa.types.is_decimal(value_type):
            return self.decimal(value_type)
        if pa.types.is_timestamp(value_type):
            return self.naive if value_type.tz is None else self.zoned
        return next((codec for is_type, codec in self.others if is_type(value_type)), None)


def codec_of(value_type: Any, forms: Forms) -> Codec:
    """Return the codec of a type. Raises StateValueError for a type without a codec."""
    types = pa.types
    if types.is_list(value_type):
        return _list_codec(value_type, forms)
    if types.is_map(value_type):
        return _map_codec(value_type, forms)
    if types.is_struct(value_type):
        return _struct_codec(value_type, forms)
    if types.is_null(value_type):
        return Codec(_convert_null)
    codec = forms.scalar(value_type)
    if codec is None:
        raise StateValueError(
            f"values of type {value_type} cannot be kept as state; use a type of "
            "spark_state.serializers' table"
        )
    return codec


def optional(function: Convert | None) -> Convert:
    """Return `function`, extended to return None for None."""
    if function is None:
        return lambda value: value
    return lambda value: None if value is None else function(value)


def never_null(function: Convert | None) -> Convert:
    """Return `function` for keys of maps, extended to raise ValueError for null."""

    def convert(value: Any) -> Any:
        key = value if value is None or function is None else function(value)
        if key is None:
            raise ValueError("a key of a map must not be null")
        return key

    return convert


def _convert_null(value: Any) -> Any:
    raise TypeError


def _list_codec(value_type: Any, forms: Forms) -> Codec:
    item = codec_of(value_type.value_type, forms)
    convert, to_arrow, from_arrow = map(optional, (item.convert, item.to_arrow, item.from_arrow))

    def convert_list(value: Any) -> list[Any] | None:
        if forms.is_null(value):
            return None
        dtype = getattr(value, "dtype", None)
        # Not for arrays of times: a time in nanoseconds has no Python value.
        if dtype is not None and dtype.kind not in "mM":
            value = value.tolist()
        if isinstance(value, str | bytes | bytearray | dict) or not hasattr(value, "__iter__"):
            raise TypeError
        return [convert(v) for v in value]

    return Codec(
        convert_list,
        mutable=True,
        to_arrow=lambda value: [to_arrow(v) for v in value],
        from_arrow=lambda value: [from_arrow(v) for v in value],
    )


def _map_codec(value_type: Any, forms: Forms) -> Codec:
    key, item = codec_of(value_type.key_type, forms), codec_of(value_type.item_type, forms)
    convert_key, key_from = never_null(key.convert), optional(key.from_arrow)
    key_to = optional(key.to_arrow)
    convert, to_arrow, from_arrow = map(optional, (item.convert, item.to_arrow, item.from_arrow))
    make_map = forms.make_map

    def convert_map(value: Any) -> Any:
        if forms.is_null(value):
            return None
        return make_map([(convert_key(k), convert(v)) for k, v in entries_of(value)])

    return Codec(
        convert_map,
        mutable=True,
        to_arrow=lambda value: [(key_to(k), to_arrow(v)) for k, v in entries_of(value)],
        from_arrow=lambda value: make_map([(key_from(k), from_arrow(v)) for k, v in value]),
    )


def entries_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the entries of `value`, a map. The map may be a dict, or a list or tuple of pairs, as
    maps are in rows. Raises TypeError for other values."""
    if isinstance(value, dict):
        return value.items()
    if not isinstance(value, list | tuple):
        raise TypeError
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        raise TypeError("a map is a dict, or a list of pairs")
    return value


def _struct_codec(value_type: pa.StructType, forms: Forms) -> Codec:
    names = tuple(field.name for field in value_type)
    codecs = [codec_of(field.type, forms) for field in value_type]
    convert = [optional(codec.convert) for codec in codecs]
    to_arrow = [optional(codec.to_arrow) for codec in codecs]
    from_arrow = [optional(codec.from_arrow) for codec in codecs]

    def convert_struct(value: Any) -> Any:
        if forms.is_null(value):
            return None
        values = forms.values_of(value, names)
        if len(values) != len(names):
            raise ValueError(f"{len(values)} fields instead of {len(names)}")
        return forms.make_row(names, tuple(f(v) for f, v in zip(convert, values, strict=True)))

    return Codec(
        convert_struct,
        mutable=any(codec.mutable for codec in codecs),
        to_arrow=lambda value: {n: f(v) for n, f, v in zip(names, to_arrow, value, strict=True)},
        from_arrow=lambda value: forms.make_row(
            names, tuple(f(value[n]) for n, f in zip(names, from_arrow, strict=True))
        ),
    )


def values_by_position(value: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """Return the values of a struct. A tuple, a Row or a list: by position. A dict or another
    object with attributes: by name; a missing name gives null."""
    if isinstance(value, tuple | list):
        return value
    by_name = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    if not isinstance(value, dict) and by_name.keys().isdisjoint(names):
        raise TypeError
    return [by_name.get(name) for name in names]


def make_tuple(_names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a struct as a plain tuple, for `Forms.make_row`."""
    return values
