"""Operator state of one subtask: registered by name, snapshotted to bytes, restored.

Each state is registered once. If the backend has restored a state of this name, the registered
state must have the mode and the schema of the restored state. A restored state that nobody
registers is kept, and later snapshots contain the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_state.codecs.codec import Forms
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import ConfigurationError
from spark_state.operator_state.broadcast_checksum import broadcast_checksum
from spark_state.operator_state.broadcast_state import BroadcastOperatorState, broadcast_item_type
from spark_state.operator_state.list_operator_state import ListOperatorState
from spark_state.operator_state.meta_info import (
    OperatorStateMetaInfo,
    OperatorStateMode,
    check_compatible,
)
from spark_state.operator_state.operator_state_snapshot import (
    OperatorState,
    OperatorStateSnapshot,
    StoredOperatorState,
)
from spark_state.serializers import StructSerializer

OperatorStateMark = dict[str, tuple[OperatorState, Any]]
"""All states at one moment: name -> state and the content of the state at that moment."""


class OperatorStateBackend:
    """State without a key, for one subtask: split lists, union lists, broadcast maps.

    A new backend is empty; `restore` makes a backend from snapshots. One thread at a time uses the
    backend, except that another thread may write a snapshot. Items, keys and values are tuples, one
    value per field of the registered Arrow schema. `forms`: Python forms of nested structs and
    timestamps.
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
        """Restore the backend of `subtask` from the snapshots of all old subtasks, in their order.

        - Split list: if there are as many snapshots as `parallelism`, each subtask keeps its items.
          Otherwise the items of all old subtasks are dealt out round robin.
        - Union list: every subtask gets the items of all old subtasks.
        - Broadcast map: every subtask gets the map of one old subtask; the maps are equal.

        Without snapshots, the backend is empty.

        Raises checkpoint_store's CorruptObjectError for bytes that are no snapshot,
        checkpoint_store's UnsupportedFormatError for a snapshot of a newer release,
        StateMigrationError if the snapshots disagree on a state, and ConfigurationError if the
        subtask does not exist.
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
        backend = cls(forms)
        for name, meta_info in _agreed(stored).items():
            of_all = [snapshot.items(name) for snapshot in stored]
            serializer = StructSerializer(meta_info.item_type, f"operator state {name!r}", forms)
            items: list[Any] = [
                item
                for part in _parts(meta_info.mode, of_all, subtask, parallelism)
                for item in serializer.from_arrow(part)
            ]
            backend._states[name] = _kind(meta_info)(meta_info, items, forms)
        return backend

    def list_state(self, name: str, schema: pa.Schema) -> ListOperatorState:
        """Register a split list: if the parallelism changes, a restore deals out the items of all
        subtasks. Raises StateMigrationError if the restored state of this name has another mode or
        schema, and StateValueError for a schema with a type that states do not support."""
        state = self.register(OperatorStateMetaInfo(name, "split", pa.struct(list(schema))))
        assert isinstance(state, ListOperatorState)
        return state

    def union_state(self, name: str, schema: pa.Schema) -> ListOperatorState:
        """Register a union list: after a restore every subtask has the items of all subtasks. The
        caller must then replace the items by the subtask's own items (`update`). Otherwise, after
        the next restore, each item is there once for every subtask. Raises the errors of
        `list_state`."""
        state = self.register(OperatorStateMetaInfo(name, "union", pa.struct(list(schema))))
        assert isinstance(state, ListOperatorState)
        return state

    def broadcast_state(
        self, name: str, key_schema: pa.Schema, value_schema: pa.Schema
    ) -> BroadcastOperatorState:
        """Register a map that is the same on every subtask. Raises the errors of `list_state`, and
        ConfigurationError for keys with lists or maps."""
        item_type = broadcast_item_type(pa.struct(list(key_schema)), pa.struct(list(value_schema)))
        state = self.register(OperatorStateMetaInfo(name, "broadcast", item_type))
        assert isinstance(state, BroadcastOperatorState)
        return state

    def register(self, meta_info: OperatorStateMetaInfo) -> OperatorState:
        """Register a state of any mode. Raises the errors of `broadcast_state`."""
        state = self._states.get(meta_info.name)
        if state is None:
            state = self._states[meta_info.name] = _kind(meta_info)(meta_info, (), self._forms)
        else:
            check_compatible(state.meta_info, meta_info, "what is registered")
        return state

    def drop(self, name: str) -> bool:
        """Delete a state with its content. Returns True if the state existed."""
        return self._states.pop(name, None) is not None

    def mark(self) -> OperatorStateMark:
        """Return a mark of the current states, for `return_to`. The first change of a state after a
        mark copies the state."""
        return {name: (state, state.share()) for name, state in self._states.items()}

    def return_to(self, mark: OperatorStateMark) -> None:
        """Undo all changes since a mark."""
        self._states = {}
        for name, (state, content) in mark.items():
            state.take_back(content)
            self._states[name] = state

    def has_changed_since(self, mark: OperatorStateMark) -> bool:
        """Return True if a state was registered, dropped or changed since a mark."""
        return self._states.keys() != mark.keys() or any(
            mark[name][0] is not state or not state.is_at(mark[name][1])
            for name, state in self._states.items()
        )

    def broadcast_checksums(self) -> dict[str, str]:
        """Return the checksums of the non-empty broadcast states, by name."""
        return {
            name: broadcast_checksum(state)
            for name, state in self._states.items()
            if isinstance(state, BroadcastOperatorState) and state.items()
        }

    def snapshot(self) -> OperatorStateSnapshot:
        """Take a snapshot of all current states. Another thread may run `to_bytes` of the
        snapshot."""
        return OperatorStateSnapshot(list(self._states.values()))


def _kind(
    meta_info: OperatorStateMetaInfo,
) -> type[ListOperatorState] | type[BroadcastOperatorState]:
    return BroadcastOperatorState if meta_info.mode == "broadcast" else ListOperatorState


def _agreed(stored: Sequence[StoredOperatorState]) -> dict[str, OperatorStateMetaInfo]:
    """Return the descriptions of the states in all snapshots, by name. Raises StateMigrationError
    if two snapshots describe a state differently."""
    agreed: dict[str, OperatorStateMetaInfo] = {}
    for subtask, snapshot in enumerate(stored):
        for meta_info in snapshot.meta_infos:
            first = agreed.setdefault(meta_info.name, meta_info)
            check_compatible(first, meta_info, f"the snapshot of subtask {subtask}")
    return agreed


def _parts(
    mode: OperatorStateMode, of_all: Sequence[Any], subtask: int, parallelism: int
) -> list[Any]:
    """Return the items of a state that `subtask` of `parallelism` restores. `of_all`: the items of
    each old subtask, None for a subtask without the state.

    A split list keeps its items if the parallelism has not changed. Otherwise the items are dealt
    out round robin: item k of all items goes to subtask k mod `parallelism`.
    """
    held = [items for items in of_all if items is not None]
    if mode == "union":
        return held
    if mode == "broadcast":
        return [held[subtask % len(held)]]
    if len(of_all) == parallelism:
        return [] if of_all[subtask] is None else [of_all[subtask]]
    together = pa.concat_arrays(held)
    return [together.take(pa.array(range(subtask, len(together), parallelism), pa.int64()))]
