"""The envelope of a store's JSON documents. Pure. `document_body` has the bodies.

    {"body":{...},"checksum":"<sha256>","format":"cowstate/barrier","version":1}

A document is canonical JSON: UTF-8, sorted keys, no white space. So equal values have equal bytes,
and every byte is checked. `checksum` is the sha256 (hex) of the canonical document without its
`checksum` entry. Envelope and checksum stay the same in every version, so a reader can tell a
damaged document from a document of a newer release.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document_body import Body, body_of

FORMAT_VERSION = 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of bytes, for error messages."""

    url: str
    name: str
    epoch: int | None = None

    def corrupt(self, problem: str) -> CorruptObjectError:
        """Build the error for damaged bytes."""
        return CorruptObjectError(self.url, self.name, problem, self.epoch)


def encode_document(kind: str, body: Any) -> bytes:
    """Encode a document of this kind. `body`: a dataclass or a mapping, see document_body."""
    document = {"format": f"cowstate/{kind}", "version": FORMAT_VERSION, "body": body_of(body)}
    return _canonical({**document, "checksum": _checksum(document)})


def decode_document(kind: str, data: bytes, source: Source, build: Callable[[Body], _T]) -> _T:
    """Verify a document, and return the result of `build` for its body. A LookupError, TypeError or
    ValueError of `build` means a damaged body.

    Raises CorruptObjectError, UnsupportedFormatError.
    """
    try:
        document = json.loads(data)
        canonical = _canonical(document)
    except (ValueError, RecursionError) as error:
        raise source.corrupt(f"{len(data)} bytes that are not JSON") from error
    if not isinstance(document, dict) or canonical != data:
        raise source.corrupt("not the canonical form that was written")
    if document.pop("checksum", None) != _checksum(document):
        raise source.corrupt("checksum mismatch")
    if document.get("format") != f"cowstate/{kind}":
        raise source.corrupt(f"format is {document.get('format')}, expected cowstate/{kind}")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        raise source.corrupt(f"format version is {version}")
    if version > FORMAT_VERSION:
        raise UnsupportedFormatError(source.url, source.name, version, FORMAT_VERSION)
    body = document.get("body")
    if not isinstance(body, dict):
        raise source.corrupt(f"unexpected content: the body is {body!r}")
    try:
        return build(body)
    except (LookupError, TypeError, ValueError) as error:
        raise source.corrupt(f"unexpected content: {error!r}") from error


def _canonical(document: object) -> bytes:
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _checksum(document: Body) -> str:
    return hashlib.sha256(_canonical(document)).hexdigest()
