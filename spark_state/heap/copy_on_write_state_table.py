"""One copy-on-write map per key group of a contiguous range."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from typing import Generic, TypeVar

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot

K = TypeVar("K")
S = TypeVar("S")
CopyOnWriteStateTableSnapshot = dict[int, CopyOnWriteStateMapSnapshot[K, S]]
"""The snapshots of a table's maps, by key group. A key group without a map has no snapshot."""


class CopyOnWriteStateTable(Generic[K, S]):
    """The maps of a range of key groups. The first use of a key group creates the map. Every map
    gets `copy_state`, see CopyOnWriteStateMap."""

    def __init__(self, key_groups: KeyGroupRange, copy_state: Callable[[S], S] = deepcopy) -> None:
        self.key_groups = key_groups
        self._copy_state = copy_state
        self._maps: dict[int, CopyOnWriteStateMap[K, S]] = {}

    def map_for(self, key_group: int) -> CopyOnWriteStateMap[K, S]:
        """Return the map of a key group. Raises ValueError for a key group outside the range."""
        state_map = self._maps.get(key_group)
        if state_map is None:
            if key_group not in self.key_groups:
                raise ValueError(f"key group {key_group} is not in {self.key_groups}")
            state_map = self._maps[key_group] = CopyOnWriteStateMap(self._copy_state)
        return state_map

    def __len__(self) -> int:
        return sum(map(len, self._maps.values()))

    def __iter__(self) -> Iterator[tuple[int, K, S]]:
        """Yield (key group, key, state) of every entry, in ascending order of key
        groups."""
        for key_group in sorted(self._maps):
            for key, state in self._maps[key_group]:
                yield key_group, key, state

    def maps(self) -> Collection[CopyOnWriteStateMap[K, S]]:
        """Return the maps of all key groups used so far."""
        return self._maps.values()

    def sizes(self) -> dict[int, int]:
        """Return the number of entries of each key group used so far."""
        return {key_group: len(state_map) for key_group, state_map in self._maps.items()}

    def snapshot(self, key_groups: KeyGroupRange) -> CopyOnWriteStateTableSnapshot[K, S]:
        """Take a snapshot of each map of `key_groups`. The caller must release each snapshot after
        its last use."""
        return {
            key_group: entries.snapshot()
            for key_group, entries in self._maps.items()
            if key_group in key_groups
        }
