"""Bodies of documents: made from dataclasses, and decoded to dataclasses. Pure.

    dataclass                  an object with an entry for each field, except for fields with their
                               default value
    a class in `_AS_LISTS`     the list of the values of its fields
    tuple                      a list
    Mapping                    an object; numbers as keys become texts
    bytes, pa.Schema           the bytes, as base64
    int, str, bool, X | None   the value; null for None

A decoder trusts nothing: each value must have the type of its field. An entry without a field is
ignored, because a later release may have written the entry.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import pyarrow as pa

from checkpoint_store.files.epoch_file_name import NamedKind, parse_epoch_file_name
from checkpoint_store.files.key_bounds import Bound, KeyBounds
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, FileTail, StateHandle
from checkpoint_store.object_names import parse_object_name

Body = dict[str, Any]
_T = TypeVar("_T")
_Decode = Callable[[Any], Any]

ParseName = Callable[[str], object | None]
"""Returns the parts of an object's name, None for a name of another kind."""

_AS_LISTS = (KeyGroupRange, KeyBounds, FilePart, FileTail)


def body_of(value: Any) -> Any:
    """Return a value in the form in which JSON can hold it."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, tuple | list):
        return [body_of(element) for element in value]
    if isinstance(value, Mapping):
        return {str(key): body_of(element) for key, element in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, pa.Schema):
        return body_of(value.serialize().to_pybytes())
    kind: Any = type(value)
    defaults = _defaults(kind)
    if isinstance(value, _AS_LISTS):
        return [body_of(getattr(value, name)) for name in defaults]
    return {
        name: body_of(element)
        for name, default in defaults.items()
        if (element := getattr(value, name)) != default
    }


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Return the default value of each field of a dataclass, MISSING for a field without a
    default."""
    return {field.name: field.default for field in fields(kind)}


def decode_body(kind: type[_T], body: object) -> _T:
    """Return the value of the dataclass `kind` that `body_of` encoded. Raises KeyError, TypeError
    or ValueError."""
    return cast(_T, _decoder(cast(Any, kind))(body))


@cache
def _decoder(kind: Any) -> _Decode:
    if is_dataclass(kind):
        return _list_decoder(kind) if kind in _AS_LISTS else _object_decoder(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if kind == Bound:
        return lambda value: value if isinstance(value, str) else decode_number(value)
    if origin is UnionType:
        decode = _decoder(parts[0])
        return lambda value: None if value is None else decode(value)
    if origin is Literal:
        return lambda value: _one_of(parts, value)
    if origin is Mapping:
        return _mapping_decoder(*parts)
    if origin is tuple:
        return _tuple_decoder(*parts)
    plain = {int: decode_number, str: decode_text, bytes: _decode_bytes, pa.Schema: _decode_schema}
    return plain[kind] if kind in plain else lambda value: _of_type(kind, value)


def _object_decoder(kind: Any) -> _Decode:
    types = get_type_hints(kind)
    decoders = {field.name: _decoder(types[field.name]) for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING}

    def decode(body: Any) -> Any:
        present = [name for name in decoders if name in required or name in body]
        return kind(**{name: decoders[name](body[name]) for name in present})

    return decode


def _list_decoder(kind: Any) -> _Decode:
    types = get_type_hints(kind)
    decode = _tuple_decoder(*(types[field.name] for field in fields(kind)))
    return lambda body: kind(*decode(body))


def _tuple_decoder(*parts: Any) -> _Decode:
    if parts[-1] is Ellipsis:
        decode = _decoder(parts[0])
        return lambda value: tuple(map(decode, _of_type(list, value)))
    decoders = [_decoder(part) for part in parts]
    return lambda value: tuple(
        decode(element) for decode, element in zip(decoders, _of_type(list, value), strict=True)
    )


def _mapping_decoder(key_type: Any, value_type: Any) -> _Decode:
    decode = _decoder(value_type)
    return lambda body: {
        key_type(key): decode(value) for key, value in _of_type(dict, body).items()
    }


def _one_of(values: tuple[str, ...], value: str) -> str:
    if value not in values:
        raise ValueError(f"{value!r} is not one of {', '.join(values)}")
    return value


def _of_type(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def decode_number(value: object) -> int:
    """Return an integer. Raises TypeError."""
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return _of_type(int, value)


def decode_text(value: object) -> str:
    """Return a string. Raises TypeError."""
    return _of_type(str, value)


def _decode_bytes(value: object) -> bytes:
    return base64.b64decode(decode_text(value), validate=True)


def _decode_schema(value: object) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(_decode_bytes(value)))


def decode_handle(body: Body, parse: ParseName) -> StateHandle:
    """Decode a handle, and check its names, see `check_handle`. Raises KeyError, TypeError or
    ValueError."""
    handle = decode_body(StateHandle, body)
    check_handle(handle, parse)
    return handle


def check_handle(handle: StateHandle, parse: ParseName) -> None:
    """Check a handle. Raises ValueError if `parse` does not recognize a name, if a name is not the
    name of a state file of the expected kind, or if the least and the greatest value of a key
    column have different types."""
    check_file_name(handle.name, handle.kind, parse)
    for bounds in handle.key_bounds:
        if type(bounds.least) is not type(bounds.greatest):
            raise ValueError(f"{bounds.least!r} and {bounds.greatest!r} are of different types")
    for part in handle.parts:
        check_file_name(part.name, "table", parse)


def check_file_name(name: str, kind: NamedKind, parse: ParseName) -> None:
    """Raise ValueError unless `name` is the name of a state file of this kind."""
    check_name(name, parse)
    file = parse_epoch_file_name(name)
    if file is None or file.kind != kind:
        raise ValueError(f"{name!r} is not the name of a {kind} file")


def check_name(name: str, parse: ParseName) -> None:
    """Raise ValueError unless `parse` recognizes an object's name. The check is needed because
    anyone with write access to a store can write any name, and names are joined to paths."""
    if parse(name) is None or parse_object_name(name) is None:
        raise ValueError(f"{name!r} is not a name of an object of this kind")
