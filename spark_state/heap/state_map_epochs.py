"""A copy-on-write map that can be read as of several epochs. Many threads read epochs while one
thread applies the next epoch.

    map            the newest state; only the thread that applies epochs uses the map
    base           a snapshot of the map after some epoch
    overlay        key -> changes of the key by epochs after the base, the newest change first
    epoch          the map after one epoch: its number, a base not later, the overlay of the base

A lookup in epoch n takes the key's newest change up to epoch n from the overlay, or the state in
the base if there is no such change. The result of a lookup in an epoch never changes: the lookup
skips changes of later epochs, and the map copies an entry shared with a base before it changes the
entry. So readers take no lock. An epoch that a reader holds keeps its overlay in memory, and all
entries of its base that the map has replaced since.

Cost: a lookup takes O(1), plus one step for every later epoch of the same base that changed the
key. Applying an epoch takes O(changes of the epoch). A new base copies the map's buckets, but no
entry. A new base is taken when the changes since the last base are more than LEAST_OVERLAY, and
more than a sixteenth of the number of buckets (I7).

Source: multi-version reads as in databases, on the snapshots of Flink's CopyOnWriteStateMap. The
code relies on CPython, where a dict lookup and a copy of a dict's keys are one step each.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot

K = TypeVar("K")
S = TypeVar("S")

LEAST_OVERLAY = 1024
BUCKETS_PER_OVERLAID_CHANGE = 16


class OverlaidChange(NamedTuple, Generic[S]):
    """A change of a key by an epoch. `state`: the new state, None if the epoch removed the key.
    `before`: the key's preceding change in the overlay, None if there is none."""

    epoch: int
    state: S | None
    before: OverlaidChange[S] | None


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class OverlaidSnapshot(Generic[K, S]):
    """A base and its overlay. As long as there is a reference to this object, the base is not
    released."""

    base: CopyOnWriteStateMapSnapshot[K, S]
    overlay: dict[K, OverlaidChange[S]]


@dataclass(frozen=True, slots=True)
class StateMapEpoch(Generic[K, S]):
    """The map after one epoch, readable as long as a caller holds the object. Callers must not
    change the states, because epochs share states."""

    number: int
    overlaid: OverlaidSnapshot[K, S]
    size: int

    def __len__(self) -> int:
        return self.size

    def get(self, key: K) -> S | None:
        """Return the state of a key, None if absent."""
        change = self._last_change(key)
        return self.overlaid.base.get(key) if change is None else change.state

    def __iter__(self) -> Iterator[tuple[K, S]]:
        """Yield (key, state) of every key, in any order."""
        base = self.overlaid.base
        for key, state in base:
            change = self._last_change(key)
            if change is None:
                yield key, state
            elif change.state is not None:
                yield key, change.state
        for key in list(self.overlaid.overlay):
            change = self._last_change(key)
            if change is not None and change.state is not None and base.get(key) is None:
                yield key, change.state

    def _last_change(self, key: K) -> OverlaidChange[S] | None:
        change = self.overlaid.overlay.get(key)
        while change is not None and change.epoch > self.number:
            change = change.before
        return change


Pinned = tuple[weakref.ref[OverlaidSnapshot[K, S]], CopyOnWriteStateMapSnapshot[K, S]]


class StateMapEpochs(Generic[K, S]):
    """The map to which epochs are applied. One thread at a time may use this object; any thread may
    read the epochs. `number`: number of the first epoch; `entries`: the state after the first
    epoch; `newest`: the epoch applied last."""

    def __init__(self, number: int, entries: Iterable[tuple[K, S]]) -> None:
        self._map: CopyOnWriteStateMap[K, S] = CopyOnWriteStateMap()
        for key, state in entries:
            self._map.put(key, state)
        self._pinned: list[Pinned[K, S]] = []
        self._changes = 0
        self._overlaid = self._overlay()
        self.newest = StateMapEpoch(number, self._overlaid, len(self._map))

    def apply(self, number: int, changes: Mapping[K, S | None]) -> None:
        """Apply the changes of epoch `number`, which must be greater than the newest epoch.
        `changes`: key -> new state; None removes the key."""
        assert number > self.newest.number, "epochs are applied in order"
        self._release_unpinned()
        overlay = self._overlaid.overlay
        self._changes += len(changes)
        # Readers never look in the old overlay for an epoch that begins a new overlay.
        begins = self._changes > self._most_changes()
        for key, state in changes.items():
            if not begins:
                overlay[key] = OverlaidChange(number, state, overlay.get(key))
            if state is None:
                self._map.remove(key)
            else:
                self._map.put(key, state)
        if begins:
            self._changes = 0
            self._overlaid = self._overlay()
        self.newest = StateMapEpoch(number, self._overlaid, len(self._map))

    def _most_changes(self) -> int:
        buckets = len(self._map.primary_table)
        return max(LEAST_OVERLAY, buckets // BUCKETS_PER_OVERLAID_CHANGE)

    def _overlay(self) -> OverlaidSnapshot[K, S]:
        overlaid: OverlaidSnapshot[K, S] = OverlaidSnapshot(self._map.snapshot(), {})
        self._pinned.append((weakref.ref(overlaid), overlaid.base))
        return overlaid

    def _release_unpinned(self) -> None:
        """Release the bases that no epoch in use refers to. The release is not done by the last
        reader's thread, because only one thread may use the map."""
        for overlaid, base in self._pinned:
            if overlaid() is None:
                base.release()
        self._pinned = [pinned for pinned in self._pinned if not pinned[1].released]
