"""The envelope of a store's JSON documents, and the parts of document bodies. Pure.

    {"body":{...},"checksum":"<sha256>","format":"cowstate/barrier","version":1}

A document is canonical JSON: UTF-8, sorted keys, no white space. So equal values have equal bytes,
and every byte is checked. `checksum` is the sha256 (hex) of the canonical document without its
`checksum` entry. Envelope and checksum stay the same in every version, so a reader can tell a
damaged document from a document of a newer release.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.key_bounds import KeyBounds
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file_name import NamedKind, parse_state_file_name
from checkpoint_store.files.state_handle import FilePart, FileTail, StateFileKind, StateHandle
from checkpoint_store.object_names import parse_object_name

FORMAT_VERSION = 1

Body = dict[str, Any]
_T = TypeVar("_T")

ParseName = Callable[[str], object | None]
"""Returns the parts of an object's name, None for a name of another kind."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of bytes, for error messages."""

    url: str
    name: str
    epoch: int | None = None


def encode_document(kind: str, body: Body) -> bytes:
    """Encode a document of this kind with this body."""
    document = {"format": f"cowstate/{kind}", "version": FORMAT_VERSION, "body": body}
    return _canonical({**document, "checksum": _checksum(document)})


def decode_document(kind: str, data: bytes, source: Source, build: Callable[[Body], _T]) -> _T:
    """Verify a document, and return the result of `build` for its body. A LookupError, TypeError or
    ValueError of `build` means a damaged body.

    Raises CorruptObjectError, UnsupportedFormatError.
    """

    def corrupt(problem: str) -> CorruptObjectError:
        return CorruptObjectError(source.url, source.name, problem, source.epoch)

    try:
        document = json.loads(data)
        canonical = _canonical(document)
    except (ValueError, RecursionError) as error:
        raise corrupt(f"{len(data)} bytes that are not JSON") from error
    if not isinstance(document, dict) or canonical != data:
        raise corrupt("not the canonical form that was written")
    if document.pop("checksum", None) != _checksum(document):
        raise corrupt("checksum mismatch")
    if document.get("format") != f"cowstate/{kind}":
        raise corrupt(f"format is {document.get('format')}, expected cowstate/{kind}")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        raise corrupt(f"format version is {version}")
    if version > FORMAT_VERSION:
        raise UnsupportedFormatError(source.url, source.name, version, FORMAT_VERSION)
    body = document.get("body")
    if not isinstance(body, dict):
        raise corrupt(f"unexpected content: the body is {body!r}")
    try:
        return build(body)
    except (LookupError, TypeError, ValueError) as error:
        raise corrupt(f"unexpected content: {error!r}") from error


def _canonical(document: object) -> bytes:
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _checksum(document: Body) -> str:
    return hashlib.sha256(_canonical(document)).hexdigest()


def encode_handle(handle: StateHandle) -> Body:
    """Encode a handle as part of a body."""
    body: Body = {
        "kind": handle.kind,
        "name": handle.name,
        "length": handle.length,
        "checksum": handle.checksum,
        "key_groups": [handle.key_groups.start, handle.key_groups.end],
        "epoch": handle.epoch,
        "rows": handle.rows,
    }
    if handle.key_bounds:
        body["key_bounds"] = [
            [bounds.column, bounds.least, bounds.greatest] for bounds in handle.key_bounds
        ]
    if handle.parts:
        body["parts"] = [[part.name, part.length, part.checksum] for part in handle.parts]
    if handle.tail is not None:
        tail = handle.tail
        whole = [tail.key_groups.start, tail.key_groups.end]
        body["tail"] = [whole, tail.length, tail.checksum]
    return body


def decode_handle(body: Body, parse: ParseName) -> StateHandle:
    """Decode a handle. Its names must be names of state files of its kind, in a directory that
    `parse` recognizes. Raises KeyError, TypeError or ValueError."""
    kind = body["kind"]
    if kind not in get_args(StateFileKind):
        raise ValueError(f"unknown kind of state file {kind!r}")
    start, end = body["key_groups"]

    def decode_part(name: object, length: object, checksum: object) -> FilePart:
        named = _decode_file_name(name, "table", parse)
        return FilePart(named, decode_number(length), decode_text(checksum))

    return StateHandle(
        kind=kind,
        name=_decode_file_name(body["name"], kind, parse),
        length=decode_number(body["length"]),
        checksum=decode_text(body["checksum"]),
        key_groups=KeyGroupRange(decode_number(start), decode_number(end)),
        epoch=decode_number(body["epoch"]),
        rows=decode_number(body["rows"]),
        key_bounds=tuple(_decode_bounds(*bounds) for bounds in body.get("key_bounds", ())),
        parts=tuple(decode_part(*part) for part in body.get("parts", ())),
        tail=_decode_tail(*body["tail"]) if "tail" in body else None,
    )


def _decode_bounds(column: object, least: object, greatest: object) -> KeyBounds:
    decode = decode_text if isinstance(least, str) else decode_number
    return KeyBounds(decode_text(column), decode(least), decode(greatest))


def _decode_tail(key_groups: Sequence[object], length: object, checksum: object) -> FileTail:
    start, end = key_groups
    whole = KeyGroupRange(decode_number(start), decode_number(end))
    return FileTail(whole, decode_number(length), decode_text(checksum))


def _decode_file_name(value: object, kind: NamedKind, parse: ParseName) -> str:
    name = decode_name(value, parse)
    file = parse_state_file_name(name)
    if file is None or file.kind != kind:
        raise ValueError(f"{name!r} is not the name of a {kind} file")
    return name


def decode_name(value: object, parse: ParseName) -> str:
    """Return an object's name that `parse` recognizes. The check is needed because anyone with
    write access to a store can write any name, and names are joined to paths. Raises TypeError,
    ValueError."""
    name = decode_text(value)
    if parse(name) is None or parse_object_name(name) is None:
        raise ValueError(f"{name!r} is not a name of an object of this kind")
    return name


def decode_number(value: object) -> int:
    """Return an integer. Raises TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not an integer")
    return value


def decode_text(value: object) -> str:
    """Return a string. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
