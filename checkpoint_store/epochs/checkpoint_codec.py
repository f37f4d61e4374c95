"""Encodes and decodes the JSON documents of an operator's store. Pure. For the envelope around each
document, see the module `document`. All decoders raise CorruptObjectError and
UnsupportedFormatError."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    GroupedCheckpoint,
    Run,
)
from checkpoint_store.epochs.operator_layout import (
    BegunName,
    parse_begun,
    parse_group,
    parse_state_file,
)
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.files.document import Source, decode_document, encode_document
from checkpoint_store.files.document_body import (
    Body,
    body_of,
    check_file_name,
    check_handle,
    check_name,
    decode_body,
    decode_number,
    decode_text,
)


def encode_metadata(metadata: StoreMetadata) -> bytes:
    """Encode `store.json`. Equal metadata gives equal bytes."""
    return encode_document("store", metadata)


def decode_metadata(data: bytes, source: Source) -> StoreMetadata:
    return decode_document("store", data, source, lambda body: decode_body(StoreMetadata, body))


def encode_run(run: Run) -> bytes:
    """Encode the body of an object under `runs/`. The object's name holds the same data; the body
    is for people."""
    return encode_document("run", run)


def encode_begun(run: Run, checkpoint: str | None) -> bytes:
    """Encode the body of an object under `begun/`. `checkpoint`: the location of the checkpoint,
    None if not known. The object's name holds all other facts, see BegunName."""
    return encode_document("run", body_of(run) | {"checkpoint": checkpoint})


def decode_begun_checkpoint(data: bytes, source: Source) -> str | None:
    """Decode the location of the checkpoint; None if the run did not know the location."""

    def build(body: Body) -> str | None:
        checkpoint = body["checkpoint"]
        return None if checkpoint is None else decode_text(checkpoint)

    return decode_document("run", data, source, build)


def encode_barrier(barrier: Barrier) -> bytes:
    return encode_document("barrier", barrier)


def decode_barrier(data: bytes, source: Source) -> Barrier:
    return decode_document("barrier", data, source, _decode_barrier)


def encode_manifest(checkpoint: CompletedCheckpoint | GroupedCheckpoint) -> bytes:
    """Encode a manifest that holds all barriers, or names the groups of barriers."""
    if isinstance(checkpoint, CompletedCheckpoint):
        return encode_document("manifest", checkpoint)
    groups = [[group.first, group.last, name] for group, name in checkpoint.groups]
    return encode_document("manifest", body_of(checkpoint) | {"groups": groups})


def encode_group(barriers: Sequence[Barrier]) -> bytes:
    return encode_document("group", {"barriers": tuple(barriers)})


def decode_group(data: bytes, source: Source) -> tuple[Barrier, ...]:
    return decode_document("group", data, source, lambda body: _decode_barriers(body["barriers"]))


def decode_manifest(data: bytes, source: Source) -> CompletedCheckpoint | GroupedCheckpoint:
    def build(body: Body) -> CompletedCheckpoint | GroupedCheckpoint:
        epoch, parallelism = decode_number(body["epoch"]), decode_number(body["parallelism"])
        run = decode_body(Run, body["run"])
        _check_run(run)
        if "groups" not in body:
            barriers = _decode_barriers(body["barriers"])
            return CompletedCheckpoint(epoch, run, parallelism, barriers)
        groups = tuple(_decode_group_object(*entry) for entry in body["groups"])
        return GroupedCheckpoint(epoch, run, parallelism, groups)

    return decode_document("manifest", data, source, build)


def _decode_barriers(bodies: Sequence[Body]) -> tuple[Barrier, ...]:
    return tuple(map(_decode_barrier, bodies))


def _decode_group_object(first: object, last: object, name: object) -> tuple[SubtaskGroup, str]:
    text = decode_text(name)
    check_name(text, parse_group)
    return SubtaskGroup(decode_number(first), decode_number(last)), text


def _decode_barrier(body: Body) -> Barrier:
    barrier = decode_body(Barrier, body)
    _check_run(barrier.run)
    for handle in barrier.handles:
        check_handle(handle, parse_state_file)
    if barrier.operator_state is not None:
        check_file_name(barrier.operator_state.name, "operator-state", parse_state_file)
    return barrier


def _check_run(run: Run) -> None:
    check_name(str(BegunName(run, 0, None)), parse_begun)
