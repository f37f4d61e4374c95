"""Whole epochs of a copy-on-write map, read by many threads while one applies the next.

    newest state   a copy-on-write map; only the thread that applies epochs touches it
    base           a snapshot of that map as it was after some epoch
    overlay        key -> what epochs after the base made of it, the newest first
    epoch          its number, a base before it, and the overlay of that

A lookup in epoch n takes what the overlay says of the key at n, else what the base has. What it can
see never changes: it skips changes of later epochs, and the map copies what it shares with a base
before it changes it. So readers take no lock, and keeping an epoch costs nothing at first; while it
is kept, so are its overlay and the entries that were replaced since its base.

Cost: a lookup takes O(1), in an epoch that was kept also a step for every later one that changed
the key under the same base. Applying an epoch takes O(its changes): a new base is a copy of the
map's buckets, not of its entries, and is taken after as many changes as a sixteenth of them (I7).

Source: multi-version reads as in databases, on the snapshots of Flink's CopyOnWriteStateMap. It
relies on CPython, where a lookup in a dict and a copy of its keys are one step each.
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


class Change(NamedTuple, Generic[S]):
    """What an epoch made of a key (None: removed it), and the change before it."""

    epoch: int
    state: S | None
    before: Change[S] | None


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class OverlaidSnapshot(Generic[K, S]):
    """A snapshot of the map, and what later epochs changed. Whoever holds it pins the snapshot."""

    base: CopyOnWriteStateMapSnapshot[K, None, S]
    overlay: dict[K, Change[S]]


@dataclass(frozen=True, slots=True)
class StateMapEpoch(Generic[K, S]):
    """The map after one epoch, for as long as anyone holds it. States are shared: change none."""

    number: int
    overlaid: OverlaidSnapshot[K, S]
    size: int

    def __len__(self) -> int:
        return self.size

    def get(self, key: K) -> S | None:
        """The state; None when absent."""
        change = self._last_change(key)
        return self.overlaid.base.get(key, None) if change is None else change.state

    def __iter__(self) -> Iterator[tuple[K, S]]:
        """(key, state) of every key, in any order."""
        base = self.overlaid.base
        for key, _, state in base:
            change = self._last_change(key)
            if change is None:
                yield key, state
            elif change.state is not None:
                yield key, change.state
        for key in list(self.overlaid.overlay):
            change = self._last_change(key)
            if change is not None and change.state is not None and base.get(key, None) is None:
                yield key, change.state

    def _last_change(self, key: K) -> Change[S] | None:
        change = self.overlaid.overlay.get(key)
        while change is not None and change.epoch > self.number:
            change = change.before
        return change


Pinned = tuple[weakref.ref[OverlaidSnapshot[K, S]], CopyOnWriteStateMapSnapshot[K, None, S]]


class StateMapEpochs(Generic[K, S]):
    """The map that epochs are applied to. Used by one thread at a time, its epochs by any.

    `number`: of the epoch whose state `entries` are.
    """

    def __init__(self, number: int, entries: Iterable[tuple[K, S]]) -> None:
        self._map: CopyOnWriteStateMap[K, None, S] = CopyOnWriteStateMap()
        for key, state in entries:
            self._map.put(key, None, state)
        self._pinned: list[Pinned[K, S]] = []
        self._changes = 0
        self._overlaid = self._overlay()
        self._newest = StateMapEpoch(number, self._overlaid, len(self._map))

    @property
    def newest(self) -> StateMapEpoch[K, S]:
        """The epoch applied last."""
        return self._newest

    def apply(self, number: int, changes: Mapping[K, S | None]) -> None:
        """Go on to epoch `number`, greater than the newest; a change to None removes the key."""
        assert number > self._newest.number, "epochs are applied in order"
        self._release_unpinned()
        overlay = self._overlaid.overlay
        self._changes += len(changes)
        # An epoch that begins a new overlay is never looked up in the old one.
        begins = self._changes > self._most_changes()
        for key, state in changes.items():
            if not begins:
                overlay[key] = Change(number, state, overlay.get(key))
            if state is None:
                self._map.remove(key, None)
            else:
                self._map.put(key, None, state)
        if begins:
            self._changes = 0
            self._overlaid = self._overlay()
        self._newest = StateMapEpoch(number, self._overlaid, len(self._map))

    def _most_changes(self) -> int:
        buckets = len(self._map.primary_table)
        return max(LEAST_OVERLAY, buckets // BUCKETS_PER_OVERLAID_CHANGE)

    def _overlay(self) -> OverlaidSnapshot[K, S]:
        overlaid: OverlaidSnapshot[K, S] = OverlaidSnapshot(self._map.snapshot(), {})
        self._pinned.append((weakref.ref(overlaid), overlaid.base))
        return overlaid

    def _release_unpinned(self) -> None:
        """Release the bases that no reader holds. It is done here and not where the last reader
        lets go, because only one thread may use the map."""
        for overlaid, base in self._pinned:
            if overlaid() is None:
                base.release()
        self._pinned = [pinned for pinned in self._pinned if not pinned[1].released]

    def check_invariants(self) -> None:
        """Assert that the map is in order and that the newest epoch is what it holds."""
        self._map.check_invariants()
        assert {base.version for _, base in self._pinned} == self._map.snapshot_versions
        assert self._changes <= self._most_changes()
        entries = {key: state for key, _, state in self._map}
        assert dict(self._newest) == entries
        assert all(self._newest.get(key) == state for key, state in entries.items())
        assert len(self._newest) == len(self._map)
