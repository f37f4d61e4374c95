"""The entries of one state on the heap, with what an epoch changed.

For every key that the running epoch changed the table remembers its key group and the state before
(None: absent).
That is the epoch's changelog (which keys) and its undo list (what they were), so a commit and a
rollback cost O(changes) (I6, I7). One sealed epoch stays undoable until the next one is sealed.
"""

from __future__ import annotations

from typing import Any

from checkpoint_store.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_table import (
    CopyOnWriteStateTable,
    CopyOnWriteStateTableSnapshot,
)
from spark_state.keyed_state.state_rows import StateEntries
from spark_state.serializers import StructSerializer

Key = tuple[Any, ...]
State = tuple[Any, ...]
Changes = dict[Key, tuple[int, State | None]]


class HeapStateTable:
    """One state's copy-on-write maps and the changes of the running and the last sealed epoch."""

    def __init__(self, name: str, serializer: StructSerializer, key_groups: KeyGroupRange) -> None:
        self.name = name
        self.serializer = serializer
        self._entries: CopyOnWriteStateTable[Key, None, State] = CopyOnWriteStateTable(
            key_groups, serializer.copy
        )
        self._changes: Changes = {}
        self._sealed: Changes = {}
        self._key: Key = ()
        self._key_group = key_groups.start
        self._unchanged = True
        self._map: CopyOnWriteStateMap[Key, None, State] = self._entries.map_for(self._key_group)

    def __len__(self) -> int:
        return len(self._entries)

    def set_current_key(self, key: Key, key_group: int) -> None:
        self._key = key
        self._unchanged = True
        if key_group != self._key_group:
            self._key_group = key_group
            self._map = self._entries.map_for(key_group)

    def get(self) -> State | None:
        return self._map.get(self._key, None)

    def put(self, state: State) -> None:
        key = self._key
        before = self._map.put_and_get_old(key, None, state)
        if self._unchanged:
            self._unchanged = False
            if key not in self._changes:
                self._changes[key] = (self._key_group, before)

    def remove(self) -> None:
        before = self._map.remove_and_get_old(self._key, None)
        if self._unchanged and before is not None:
            self._unchanged = False
            self._changes.setdefault(self._key, (self._key_group, before))

    def changes(self) -> StateEntries:
        """What the running epoch changed, with the states as they are now."""
        keys = list(self._changes)
        key_groups = [key_group for key_group, _ in self._changes.values()]
        states = [
            self._entries.map_for(key_group).get(key, None)
            for key, key_group in zip(keys, key_groups, strict=True)
        ]
        return StateEntries(self.name, self.serializer, keys, key_groups, states)

    def seal(self) -> None:
        """End the running epoch; it can be undone until the next one is sealed."""
        self._sealed, self._changes = self._changes, {}

    def rollback(self) -> None:
        """Put back what the running epoch changed."""
        changes, self._changes = self._changes, {}
        self._put_back(changes)

    def undo_sealed(self) -> None:
        """Put back what the last sealed epoch changed. The running epoch must be unchanged."""
        assert not self._changes, "an epoch is running"
        sealed, self._sealed = self._sealed, {}
        self._put_back(sealed)

    def _put_back(self, changes: Changes) -> None:
        for key, (key_group, before) in changes.items():
            entries = self._entries.map_for(key_group)
            if before is None:
                entries.remove(key, None)
            else:
                entries.put(key, None, before)

    def apply(self, entries: StateEntries) -> None:
        """Apply entries of a file to the base state; nothing of it can be undone."""
        map_for = self._entries.map_for
        rows = zip(entries.keys, entries.key_groups, entries.states, strict=True)
        for key, key_group, state in rows:
            if state is None:
                map_for(key_group).remove(key, None)
            else:
                map_for(key_group).put(key, None, state)
        self._sealed = {}

    def snapshot(self) -> CopyOnWriteStateTableSnapshot[Key, None, State]:
        """The entries of this moment, without copying them."""
        return self._entries.snapshot()

    def check_invariants(self) -> None:
        self._entries.check_invariants()
