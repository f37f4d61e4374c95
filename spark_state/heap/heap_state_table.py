"""The values of one value state on the heap, with what an epoch changed.

For every key that the running epoch changed, the table remembers its key group and the state before
(None: absent). That is the epoch's changelog (which keys) and its undo list (what they were), so a
commit and a rollback cost O(changes) (I6, I7). One sealed epoch stays undoable until the next one
is sealed.

States are shared with undo lists and snapshots, and are replaced, never changed.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_table import (
    CopyOnWriteStateTable,
    CopyOnWriteStateTableSnapshot,
)
from spark_state.keyed_state.state_rows import StateEntries
from spark_state.keyed_state.state_serializer import StateSerializer

Key = tuple[Any, ...]
S = TypeVar("S")


class HeapStateTable(Generic[S]):
    """One state's copy-on-write maps and the changes of the running and the last sealed epoch."""

    def __init__(
        self, name: str, serializer: StateSerializer[S], key_groups: KeyGroupRange
    ) -> None:
        self.name = name
        self.serializer = serializer
        self._entries: CopyOnWriteStateTable[Key, None, S] = CopyOnWriteStateTable(key_groups)
        self._changes: dict[Key, tuple[int, S | None]] = {}
        self._sealed: dict[Key, tuple[int, S | None]] = {}
        self._key: Key = ()
        self._key_group = key_groups.start
        self._unchanged = True  # False: the current key is in _changes, which saves a look-up
        self._map: CopyOnWriteStateMap[Key, None, S] = self._entries.map_for(self._key_group)

    def __len__(self) -> int:
        return len(self._entries)

    def set_current_key(self, key: Key, key_group: int) -> None:
        self._key = key
        self._unchanged = True
        if key_group != self._key_group:
            self._key_group = key_group
            self._map = self._entries.map_for(key_group)

    def get(self) -> S | None:
        return self._map.get(self._key, None)

    def put(self, state: S) -> None:
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

    def number_of_changes(self) -> int:
        """How many keys the running epoch has changed."""
        return len(self._changes)

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
        self._sealed = self._end_changes()

    def rollback(self) -> None:
        """Put back what the running epoch changed."""
        self._put_back(self._end_changes())

    def undo_sealed(self) -> None:
        """Put back what the last sealed epoch changed. The running epoch must be unchanged."""
        assert not self._changes, "an epoch is running"
        sealed, self._sealed = self._sealed, {}
        self._put_back(sealed)

    def _end_changes(self) -> dict[Key, tuple[int, S | None]]:
        """End the running epoch, and return what it changed. The next epoch begins without changes,
        also of the current key."""
        self._unchanged = True
        changes, self._changes = self._changes, {}
        return changes

    def _put_back(self, changes: dict[Key, tuple[int, S | None]]) -> None:
        for key, (key_group, before) in changes.items():
            entries = self._entries.map_for(key_group)
            if before is None:
                entries.remove(key, None)
            else:
                entries.put(key, None, before)

    def apply(self, entries: StateEntries) -> None:
        """Apply entries of a file to the base state; nothing of it can be undone. The running epoch
        must be unchanged."""
        assert not self._changes, "an epoch is running"
        map_for = self._entries.map_for
        rows = zip(entries.keys, entries.key_groups, entries.states, strict=True)
        for key, key_group, state in rows:
            if state is None:
                map_for(key_group).remove(key, None)
            else:
                map_for(key_group).put(key, None, state)
        self._sealed = {}

    def sizes(self) -> dict[int, int]:
        """The number of entries by key group."""
        return self._entries.sizes()

    def snapshot(self, key_groups: KeyGroupRange) -> CopyOnWriteStateTableSnapshot[Key, None, S]:
        """The entries of these key groups at this moment, without copying them."""
        return self._entries.snapshot(key_groups)

    @staticmethod
    def rows_of(state: S) -> tuple[S]:
        """What a file holds of one key."""
        return (state,)

    def check_invariants(self) -> None:
        self._entries.check_invariants()
        assert self._unchanged or self._key in self._changes
