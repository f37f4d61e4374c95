"""Encodes and decodes the JSON documents of an operator's store. Pure. See document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    GroupedCheckpoint,
    OperatorStateHandle,
    Run,
    StateSchema,
    SubtaskTime,
)
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.operator_layout import (
    BegunName,
    parse_begun,
    parse_group,
    parse_operator_state,
    parse_state_file,
)
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.files.document import (
    Body,
    Source,
    decode_document,
    decode_handle,
    decode_name,
    decode_number,
    decode_text,
    encode_document,
    encode_handle,
)


def encode_metadata(metadata: StoreMetadata) -> bytes:
    """Encode `store.json`. Equal metadata gives equal bytes."""
    body = {
        "store_id": metadata.store_id,
        "operator": metadata.operator,
        "max_parallelism": metadata.max_parallelism,
        "key_schema_json": metadata.key_schema_json,
    }
    return encode_document("store", body)


def decode_metadata(data: bytes, source: Source) -> StoreMetadata:
    """Decode `store.json`. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> StoreMetadata:
        return StoreMetadata(
            store_id=decode_text(body["store_id"]),
            operator=decode_text(body["operator"]),
            max_parallelism=decode_number(body["max_parallelism"]),
            key_schema_json=decode_text(body["key_schema_json"]),
        )

    return decode_document("store", data, source, build)


def encode_run(run: Run) -> bytes:
    """Encode a run's entry. The object's name holds the same data; the body is for people."""
    return encode_document("run", _run_body(run))


def encode_begun(run: Run, checkpoint: str | None) -> bytes:
    """Encode the start of a run. The object's name holds the rest. `checkpoint`: the location of
    the checkpoint, None if not known."""
    return encode_document("run", _run_body(run) | {"checkpoint": checkpoint})


def decode_begun_checkpoint(data: bytes, source: Source) -> str | None:
    """Decode the location of the checkpoint; None if the run did not know the location. Raises
    CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> str | None:
        checkpoint = body["checkpoint"]
        return None if checkpoint is None else decode_text(checkpoint)

    return decode_document("run", data, source, build)


def encode_barrier(barrier: Barrier) -> bytes:
    """Encode a barrier."""
    return encode_document("barrier", _barrier_body(barrier))


def decode_barrier(data: bytes, source: Source) -> Barrier:
    """Decode a barrier. Raises CorruptObjectError, UnsupportedFormatError."""
    return decode_document("barrier", data, source, _barrier)


def encode_manifest(checkpoint: CompletedCheckpoint) -> bytes:
    """Encode a manifest that holds the completed checkpoint with all barriers."""
    body = {
        "epoch": checkpoint.epoch,
        "run": _run_body(checkpoint.run),
        "parallelism": checkpoint.parallelism,
        "barriers": [_barrier_body(barrier) for barrier in checkpoint.barriers],
    }
    return encode_document("manifest", body)


def encode_grouped_manifest(checkpoint: GroupedCheckpoint) -> bytes:
    """Encode a manifest that names the groups of barriers."""
    body = {
        "epoch": checkpoint.epoch,
        "run": _run_body(checkpoint.run),
        "parallelism": checkpoint.parallelism,
        "groups": [[group.first, group.last, name] for group, name in checkpoint.groups],
    }
    return encode_document("manifest", body)


def encode_group(barriers: Sequence[Barrier]) -> bytes:
    """Encode the barriers of a group."""
    body = {"barriers": [_barrier_body(barrier) for barrier in barriers]}
    return encode_document("group", body)


def decode_group(data: bytes, source: Source) -> tuple[Barrier, ...]:
    """Decode the barriers of a group. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> tuple[Barrier, ...]:
        return tuple(map(_barrier, body["barriers"]))

    return decode_document("group", data, source, build)


def decode_manifest(data: bytes, source: Source) -> CompletedCheckpoint | GroupedCheckpoint:
    """Decode a manifest. Raises CorruptObjectError, UnsupportedFormatError."""

    def build(body: Body) -> CompletedCheckpoint | GroupedCheckpoint:
        if "groups" in body:
            return _grouped(body)
        return CompletedCheckpoint(
            epoch=decode_number(body["epoch"]),
            run=_run(body["run"]),
            parallelism=decode_number(body["parallelism"]),
            barriers=tuple(_barrier(barrier) for barrier in body["barriers"]),
        )

    return decode_document("manifest", data, source, build)


def _run_body(run: Run) -> Body:
    return {"number": run.number, "run_id": run.run_id}


def _grouped(body: Body) -> GroupedCheckpoint:
    return GroupedCheckpoint(
        epoch=decode_number(body["epoch"]),
        run=_run(body["run"]),
        parallelism=decode_number(body["parallelism"]),
        groups=tuple(
            (
                SubtaskGroup(decode_number(first), decode_number(last)),
                decode_name(name, parse_group),
            )
            for first, last, name in body["groups"]
        ),
    )


def _run(body: Body) -> Run:
    run = Run(decode_number(body["number"]), decode_text(body["run_id"]))
    decode_name(str(BegunName(run, 0, None)), parse_begun)
    return run


def _barrier_body(barrier: Barrier) -> Body:
    time = {} if barrier.time is None else {"time": _time_body(barrier.time)}
    held = barrier.operator_state
    operator_state = {} if held is None else {"operator_state": _operator_state_body(held)}
    deleted = [_state_body(state) for state in barrier.deleted_states]
    return {
        **time,
        **operator_state,
        **({"deleted_states": deleted} if deleted else {}),
        **({"restored": True} if barrier.restored else {}),
        "barrier_id": barrier.barrier_id,
        "epoch": barrier.epoch,
        "subtask": barrier.subtask,
        "parallelism": barrier.parallelism,
        "run": _run_body(barrier.run),
        "attempt": barrier.attempt,
        "plan_id": barrier.plan_id,
        "base": list(barrier.base),
        "base_epoch": barrier.base_epoch,
        "base_run": barrier.base_run,
        "handles": [encode_handle(handle) for handle in barrier.handles],
        "states": [_state_body(state) for state in barrier.states],
        "report": _report_body(barrier.report),
    }


def _state_body(state: StateSchema) -> Body:
    body: Body = {"name": state.name, "kind": state.kind, "schema_json": state.schema_json}
    if state.ttl_ms is not None:
        body["ttl_ms"] = state.ttl_ms
    return body | {"since": state.since} if state.since else body


def _state(body: Body) -> StateSchema:
    return StateSchema(
        decode_text(body["name"]),
        decode_text(body["kind"]),
        decode_text(body["schema_json"]),
        _number_or_none(body.get("ttl_ms")),
        decode_number(body.get("since", 0)),
    )


def _operator_state_body(handle: OperatorStateHandle) -> Body:
    return {
        "name": handle.name,
        "length": handle.length,
        "checksum": handle.checksum,
        "epoch": handle.epoch,
        "broadcast": [list(state) for state in handle.broadcast],
    }


def _operator_state(body: Body) -> OperatorStateHandle:
    return OperatorStateHandle(
        name=decode_name(body["name"], parse_operator_state),
        length=decode_number(body["length"]),
        checksum=decode_text(body["checksum"]),
        epoch=decode_number(body["epoch"]),
        broadcast=tuple(
            (decode_text(name), decode_text(checksum)) for name, checksum in body["broadcast"]
        ),
    )


def _report_body(report: EpochReport) -> Body:
    numbers = {field.name: getattr(report, field.name) for field in fields(EpochReport)}
    return {name: number for name, number in numbers.items() if number is not None}


def _report(body: Body) -> EpochReport:
    field_names = {field.name for field in fields(EpochReport)}
    return EpochReport(
        **{name: decode_number(number) for name, number in body.items() if name in field_names}
    )


def _time_body(time: SubtaskTime) -> Body:
    return {
        "batch_ms": time.batch_ms,
        "watermark_ms": time.watermark_ms,
        "reached_ms": list(time.reached_ms),
        "next_timer_ms": time.next_timer_ms,
    }


def _time(body: Body) -> SubtaskTime:
    return SubtaskTime(
        batch_ms=_number_or_none(body["batch_ms"]),
        watermark_ms=decode_number(body["watermark_ms"]),
        reached_ms=tuple(_number_or_none(reached) for reached in body["reached_ms"]),
        next_timer_ms=_number_or_none(body["next_timer_ms"]),
    )


def _number_or_none(value: object) -> int | None:
    return None if value is None else decode_number(value)


def _barrier(body: Body) -> Barrier:
    time, operator_state = body.get("time"), body.get("operator_state")
    return Barrier(
        barrier_id=decode_text(body["barrier_id"]),
        epoch=decode_number(body["epoch"]),
        subtask=decode_number(body["subtask"]),
        parallelism=decode_number(body["parallelism"]),
        run=_run(body["run"]),
        attempt=decode_number(body["attempt"]),
        plan_id=decode_text(body["plan_id"]),
        base=tuple(decode_text(barrier_id) for barrier_id in body["base"]),
        base_epoch=_number_or_none(body["base_epoch"]),
        base_run=_number_or_none(body["base_run"]),
        handles=tuple(decode_handle(handle, parse_state_file) for handle in body["handles"]),
        states=tuple(map(_state, body["states"])),
        deleted_states=tuple(map(_state, body.get("deleted_states", ()))),
        restored=bool(body.get("restored")),
        report=_report(body["report"]),
        time=None if time is None else _time(time),
        operator_state=None if operator_state is None else _operator_state(operator_state),
    )
