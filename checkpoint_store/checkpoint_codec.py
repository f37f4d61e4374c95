"""The JSON documents of a store: bytes to values and back. Pure.

    {"body":{...},"checksum":"<sha256>","format":"cowstate/barrier","version":1}

A document is canonical JSON: UTF-8, keys sorted, no white space, so equal values have equal bytes
and every byte is checked. `checksum` is the sha256 (hex) of the canonical document without its
`checksum` entry. Envelope and checksum are the same in every version, so that a damaged document
is told from one that a newer release wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from checkpoint_store.completed_checkpoint import Barrier, CompletedCheckpoint, Run, StateSchema
from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.key_bounds import KeyBounds
from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.state_handle import StateHandle
from checkpoint_store.store_metadata import StoreMetadata

FORMAT_VERSION = 1

_Body = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Source:
    """Where bytes came from, for the errors."""

    url: str
    name: str
    epoch: int | None = None


def encode_metadata(metadata: StoreMetadata) -> bytes:
    """`store.json`; equal metadata gives equal bytes."""
    body = {
        "store_id": metadata.store_id,
        "operator": metadata.operator,
        "max_parallelism": metadata.max_parallelism,
        "key_schema_json": metadata.key_schema_json,
    }
    return encode_document("store", body, metadata.format_version)


def decode_metadata(data: bytes, source: Source) -> StoreMetadata:
    """Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: _Body) -> StoreMetadata:
        return StoreMetadata(
            store_id=decode_text(body["store_id"]),
            operator=decode_text(body["operator"]),
            max_parallelism=decode_number(body["max_parallelism"]),
            key_schema_json=decode_text(body["key_schema_json"]),
        )

    return decode_document("store", data, source, build)


def encode_run(run: Run) -> bytes:
    """A run's entry. Its name says the same; the body is for people."""
    return encode_document("run", _run_body(run))


def encode_barrier(barrier: Barrier) -> bytes:
    """A barrier."""
    return encode_document("barrier", _barrier_body(barrier))


def decode_barrier(data: bytes, source: Source) -> Barrier:
    """Raises CorruptObjectError, UnsupportedFormatError."""
    return decode_document("barrier", data, source, _barrier)


def encode_manifest(checkpoint: CompletedCheckpoint) -> bytes:
    """A manifest: the completed checkpoint, barriers and all."""
    body = {
        "epoch": checkpoint.epoch,
        "run": _run_body(checkpoint.run),
        "parallelism": checkpoint.parallelism,
        "barriers": [_barrier_body(barrier) for barrier in checkpoint.barriers],
    }
    return encode_document("manifest", body)


def decode_manifest(data: bytes, source: Source) -> CompletedCheckpoint:
    """Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: _Body) -> CompletedCheckpoint:
        return CompletedCheckpoint(
            epoch=decode_number(body["epoch"]),
            run=_run(body["run"]),
            parallelism=decode_number(body["parallelism"]),
            barriers=tuple(_barrier(barrier) for barrier in body["barriers"]),
        )

    return decode_document("manifest", data, source, build)


def encode_document(kind: str, body: _Body, version: int = FORMAT_VERSION) -> bytes:
    """The document of a kind, whatever its body is."""
    document = {"format": f"cowstate/{kind}", "version": version, "body": body}
    return _canonical({**document, "checksum": _checksum(document)})


def decode_document(kind: str, data: bytes, source: Source, build: Callable[[_Body], _T]) -> _T:
    """What `build` makes of the body of a verified document; a LookupError, TypeError or
    ValueError of it means that the body is not what was written.

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
    try:
        return build(document["body"])
    except (LookupError, TypeError, ValueError) as error:
        raise corrupt(f"unexpected content: {error!r}") from error


def _canonical(document: object) -> bytes:
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _checksum(document: _Body) -> str:
    return hashlib.sha256(_canonical(document)).hexdigest()


def _run_body(run: Run) -> _Body:
    return {"number": run.number, "run_id": run.run_id}


def _run(body: _Body) -> Run:
    return Run(decode_number(body["number"]), decode_text(body["run_id"]))


def _barrier_body(barrier: Barrier) -> _Body:
    return {
        "barrier_id": barrier.barrier_id,
        "epoch": barrier.epoch,
        "subtask": barrier.subtask,
        "parallelism": barrier.parallelism,
        "run": _run_body(barrier.run),
        "attempt": barrier.attempt,
        "plan_id": barrier.plan_id,
        "base": list(barrier.base),
        "base_epoch": barrier.base_epoch,
        "handles": [encode_handle(handle) for handle in barrier.handles],
        "states": [
            {"name": state.name, "kind": state.kind, "schema_json": state.schema_json}
            for state in barrier.states
        ],
    }


def _barrier(body: _Body) -> Barrier:
    base_epoch = body["base_epoch"]
    return Barrier(
        barrier_id=decode_text(body["barrier_id"]),
        epoch=decode_number(body["epoch"]),
        subtask=decode_number(body["subtask"]),
        parallelism=decode_number(body["parallelism"]),
        run=_run(body["run"]),
        attempt=decode_number(body["attempt"]),
        plan_id=decode_text(body["plan_id"]),
        base=tuple(decode_text(barrier_id) for barrier_id in body["base"]),
        base_epoch=None if base_epoch is None else decode_number(base_epoch),
        handles=tuple(decode_handle(handle) for handle in body["handles"]),
        states=tuple(
            StateSchema(
                decode_text(state["name"]),
                decode_text(state["kind"]),
                decode_text(state["schema_json"]),
            )
            for state in body["states"]
        ),
    )


def encode_handle(handle: StateHandle) -> _Body:
    """A handle as part of a body."""
    body: _Body = {
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
    return body


def decode_handle(body: _Body) -> StateHandle:
    """Raises KeyError, TypeError or ValueError."""
    kind = body["kind"]
    if kind not in ("changelog", "snapshot"):
        raise ValueError(f"unknown kind of state file {kind!r}")
    start, end = body["key_groups"]
    return StateHandle(
        kind=kind,
        name=decode_text(body["name"]),
        length=decode_number(body["length"]),
        checksum=decode_text(body["checksum"]),
        key_groups=KeyGroupRange(decode_number(start), decode_number(end)),
        epoch=decode_number(body["epoch"]),
        rows=decode_number(body["rows"]),
        key_bounds=tuple(_decode_bounds(*bounds) for bounds in body.get("key_bounds", ())),
    )


def _decode_bounds(column: object, least: object, greatest: object) -> KeyBounds:
    decode = decode_text if isinstance(least, str) else decode_number
    return KeyBounds(decode_text(column), decode(least), decode(greatest))


def decode_number(value: object) -> int:
    """Raises TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not an integer")
    return value


def decode_text(value: object) -> str:
    """Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
