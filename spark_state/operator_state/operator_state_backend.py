"""The operator state of one subtask: registered by name, snapshotted to bytes, restored.

A state is registered once ("try register"): if the backend was restored and has its name, mode and
schema must agree; a restored state that nobody registers is kept and written on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_state.codecs.codec import Forms
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import ConfigurationError
from spark_state.operator_state.broadcast_checksum import broadcast_checksum
from spark_state.operator_state.broadcast_state import BroadcastOperatorState, broadcast_item_type
from spark_state.operator_state.list_operator_state import ListOperatorState
from spark_state.operator_state.meta_info import OperatorStateMetaInfo, check_compatible
from spark_state.operator_state.operator_state_snapshot import (
    OperatorState,
    OperatorStateSnapshot,
    StoredOperatorState,
)
from spark_state.operator_state.repartitioner import assign_items


@dataclass(frozen=True, slots=True)
class OperatorStateMark:
    """All states at one moment, and what each of them held."""

    held: dict[str, tuple[OperatorState, Any]]


class OperatorStateBackend:
    """State without a key, for one subtask: lists that are dealt out, unions, broadcast maps.

    Begins empty; `restore` makes one from snapshots. Used by one thread at a time, except that a
    snapshot may be written by another. Items, keys and values are tuples, one value a field of the
    Arrow schema they are registered with. `forms`: of their nested structs and timestamps.
    """

    def __init__(self, forms: Forms = PLAIN_FORMS) -> None:
        self._forms = forms
        self._states: dict[str, OperatorState] = {}

    @classmethod
    def restore(
        cls,
        snapshots: Sequence[bytes],
        subtask: int = 0,
        parallelism: int = 1,
        forms: Forms = PLAIN_FORMS,
    ) -> OperatorStateBackend:
        """The backend of `subtask` out of the snapshots of all old subtasks, in their order.

        As many snapshots as `parallelism`: lists and maps go back as they were. Otherwise the items
        of a list state are dealt round robin. Every subtask gets all items of a union state. No
        snapshots: an empty backend.

        Raises checkpoint_store's CorruptObjectError for bytes that no snapshot wrote and its
        UnsupportedFormatError for those of a newer release, StateMigrationError when the snapshots
        disagree on a state, and ConfigurationError when there is no such subtask.
        """
        if not 0 <= subtask < parallelism:
            raise ConfigurationError(
                f"there is no subtask {subtask} of {parallelism}; the first is 0, the last "
                f"{parallelism - 1}"
            )
        stored = [
            StoredOperatorState(data, f"the snapshot of subtask {old}")
            for old, data in enumerate(snapshots)
        ]
        meta_infos = _agreed(stored)
        assigned = assign_items([snapshot.meta_infos for snapshot in stored], subtask, parallelism)
        backend = cls(forms)
        for name, assignments in assigned.items():
            items = [
                item
                for mine in assignments
                for item in stored[mine.snapshot].items(name, mine.offsets, forms)
            ]
            kind = _kind(meta_infos[name])
            backend._states[name] = kind(meta_infos[name], items, forms)
        return backend

    def list_state(self, name: str, schema: pa.Schema) -> ListOperatorState:
        """Register a list whose items are dealt out to the subtasks at another parallelism.

        Raises StateMigrationError when a state of that name has another mode or schema, and
        StateValueError for a type that state cannot hold.
        """
        state = self.register(OperatorStateMetaInfo(name, "split", pa.struct(list(schema))))
        assert isinstance(state, ListOperatorState)
        return state

    def union_state(self, name: str, schema: pa.Schema) -> ListOperatorState:
        """Register a list of which every subtask gets the items of all after a restore.

        A subtask then replaces them by its own (`update`); otherwise the next restore gives
        everybody's items once for every subtask. Raises as `list_state`.
        """
        state = self.register(OperatorStateMetaInfo(name, "union", pa.struct(list(schema))))
        assert isinstance(state, ListOperatorState)
        return state

    def broadcast_state(
        self, name: str, key_schema: pa.Schema, value_schema: pa.Schema
    ) -> BroadcastOperatorState:
        """Register a map that is the same on every subtask. Raises as `list_state`, and
        ConfigurationError for keys that hold lists or maps."""
        item_type = broadcast_item_type(pa.struct(list(key_schema)), pa.struct(list(value_schema)))
        state = self.register(OperatorStateMetaInfo(name, "broadcast", item_type))
        assert isinstance(state, BroadcastOperatorState)
        return state

    def register(self, meta_info: OperatorStateMetaInfo) -> OperatorState:
        """Register a state of any mode. Raises as `broadcast_state`."""
        state = self._states.get(meta_info.name)
        if state is None:
            state = self._states[meta_info.name] = _kind(meta_info)(meta_info, (), self._forms)
        else:
            check_compatible(state.meta_info, meta_info, "what is registered")
        return state

    def drop(self, name: str) -> bool:
        """Delete a state with all it has, and say whether it was there."""
        return self._states.pop(name, None) is not None

    def mark(self) -> OperatorStateMark:
        """This moment, to come back to. A change after it costs the size of the state once."""
        return OperatorStateMark(
            {name: (state, state.share()) for name, state in self._states.items()}
        )

    def return_to(self, mark: OperatorStateMark) -> None:
        """Undo all changes since a mark."""
        self._states = {}
        for name, (state, content) in mark.held.items():
            state.take_back(content)
            self._states[name] = state

    def has_changed_since(self, mark: OperatorStateMark) -> bool:
        """Whether states were registered, dropped or changed since a mark."""
        return self._states.keys() != mark.held.keys() or any(
            mark.held[name][0] is not state or not state.is_at(mark.held[name][1])
            for name, state in self._states.items()
        )

    def broadcast_checksums(self) -> dict[str, str]:
        """The checksums of the broadcast states that are not empty, by name."""
        return {
            name: broadcast_checksum(state)
            for name, state in self._states.items()
            if isinstance(state, BroadcastOperatorState) and state.items()
        }

    def snapshot(self) -> OperatorStateSnapshot:
        """All states of this moment; `to_bytes` of it may run in another thread."""
        return OperatorStateSnapshot(list(self._states.values()))


def _kind(
    meta_info: OperatorStateMetaInfo,
) -> type[ListOperatorState] | type[BroadcastOperatorState]:
    return BroadcastOperatorState if meta_info.mode == "broadcast" else ListOperatorState


def _agreed(stored: Sequence[StoredOperatorState]) -> dict[str, OperatorStateMetaInfo]:
    """The states by name. Raises StateMigrationError when the snapshots disagree on one."""
    agreed: dict[str, OperatorStateMetaInfo] = {}
    for subtask, snapshot in enumerate(stored):
        for meta_info in snapshot.meta_infos:
            first = agreed.setdefault(meta_info.name, replace(meta_info, offsets=range(0)))
            check_compatible(first, meta_info, f"the snapshot of subtask {subtask}")
    return agreed
