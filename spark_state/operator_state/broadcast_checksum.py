"""Checksum of a broadcast state's content, equal on all subtasks.

The checksum is the SHA-256 of the entries in Arrow's IPC form, in the order of the keys; the
entries of nested maps are in the order of the nested keys. So the checksum does not depend on the
order in which keys were put.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_state.errors import BroadcastStateError
from spark_state.frozen_keys import frozen, in_order
from spark_state.operator_state.broadcast_state import BroadcastOperatorState


def broadcast_checksum(state: BroadcastOperatorState) -> str:
    """Return the checksum of a broadcast state's content, in hexadecimal."""
    values = dict(state.items())
    entries = [(key, _in_order_of_keys(values[key])) for key in in_order(values)]
    column = state.serializer.to_arrow(entries)
    batch = pa.RecordBatch.from_arrays([column], names=["entry"])
    written = batch.schema.serialize().to_pybytes() + batch.serialize().to_pybytes()
    return hashlib.sha256(written).hexdigest()


def _in_order_of_keys(value: Any) -> Any:
    """Sort the entries of each map in a value by key."""
    if isinstance(value, dict):
        keys = {frozen(key): key for key in value}
        return {keys[key]: _in_order_of_keys(value[keys[key]]) for key in in_order(keys)}
    if isinstance(value, tuple):
        return tuple(map(_in_order_of_keys, value))
    return [*map(_in_order_of_keys, value)] if isinstance(value, list) else value


def check_broadcast_agrees(checksums: Sequence[Mapping[str, str]]) -> None:
    """Raise BroadcastStateError unless all subtasks hold the same broadcast states. `checksums`:
    for each subtask in order, the checksums of the non-empty broadcast states by name."""
    for name in sorted({name for of_subtask in checksums for name in of_subtask}):
        subtasks: dict[str | None, list[int]] = {}
        for subtask, of_subtask in enumerate(checksums):
            subtasks.setdefault(of_subtask.get(name), []).append(subtask)
        if len(subtasks) > 1:
            groups = " and ".join(f"subtasks {numbers}" for numbers in subtasks.values())
            raise BroadcastStateError(
                f"broadcast state {name!r} is not the same in all subtasks: {groups} differ. What "
                "handleBroadcastRows puts must depend on its rows and on this state alone, and "
                "neither on the subtask nor on time, randomness or the order of sets; repair it, "
                "and restart the query from an epoch before the difference, or with a new "
                "checkpoint"
            )
