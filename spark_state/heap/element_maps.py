"""The elements of all keys in copy-on-write maps, one map per key group.

    key group -> copy-on-write map: key -> Elements: element -> value

The elements of a key are one dictionary. After a snapshot, map and snapshot share the dictionary,
and the map copies the dictionary before its first change. So the cost of a change does not depend
on the number of elements, except for one copy of the key's dictionary per snapshot. The copy is
cheap compared to the snapshot, which writes every element.

Each operation also updates the number of elements per key group and the index of due times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import (
    CopyOnWriteStateTable,
    CopyOnWriteStateTableSnapshot,
)
from spark_state.heap.due_index import DueIndex
from spark_state.heap.heap_memory import bytes_of_elements
from spark_state.heap.state_map_entry import Bucket
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.keyed_tables import DueTime

E = TypeVar("E")
V = TypeVar("V")


class Elements(Generic[E, V]):
    """The elements of one key.

    `values`: element -> value, never empty in a map. `next_number`: for a list, the position of the
    next appended element. `is_kept`: True if a caller keeps this object for `put_back`; then a
    change is made in a copy.
    """

    __slots__ = ("is_kept", "next_number", "values")

    def __init__(self, values: dict[E, V], next_number: int) -> None:
        self.values = values
        self.next_number = next_number
        self.is_kept = False

    def copy(self) -> Elements[E, V]:
        """Return a copy that may be changed."""
        return Elements(self.values.copy(), self.next_number)


class ElementMaps(Generic[E, V]):
    """The elements of the keys in `key_groups`. `due_time`: returns the due time of an element,
    None if elements never become due."""

    def __init__(self, key_groups: KeyGroupRange, due_time: DueTime | None) -> None:
        self._maps: CopyOnWriteStateTable[Key, Elements[E, V]] = CopyOnWriteStateTable(
            key_groups, Elements.copy
        )
        self._due_time = due_time
        self.due = DueIndex()
        self.sizes: dict[int, int] = {}
        # The entry of the last key is cached, so several operations on one key need one look-up.
        # `found`: the elements of the key, None without elements; `_is_own`: True if the elements
        # may be changed in place.
        self.found: Elements[E, V] | None = None
        self._key: Key | None = None
        self._map = self._maps.map_for(key_groups.start)
        self._entry: Bucket[Key, Elements[E, V]] = None
        self._is_own = False

    def get(self, key: Key, key_group: int) -> Elements[E, V] | None:
        """Return the elements of a key, None if the key has none. The caller must not change
        them."""
        if key is not self._key:
            self._find(key, key_group)
        return self.found

    def put(self, key: Key, key_group: int, element: E, value: V) -> V | None:
        """Set the value of an element and return the previous value; None if the element had no
        value."""
        if key is not self._key:
            self._find(key, key_group)
        own = self.found
        if own is None:
            own = self._insert(key, Elements({}, 0))
        elif not self._is_own:
            own = self._to_change()
        values = own.values
        before = values.get(element)
        values[element] = value
        if before is None:
            self.sizes[key_group] = self.sizes.get(key_group, 0) + 1
        if isinstance(element, int) and element >= own.next_number:
            own.next_number = element + 1
        if self._due_time is not None:
            entry = (key_group, key, element)
            if before is not None:
                self.due.forget(self._due_time(element, before), entry)
            self.due.note(self._due_time(element, value), entry)
        return before

    def remove(self, key: Key, key_group: int, element: E) -> V | None:
        """Remove an element and return the removed value; None if the element had no value."""
        if key is not self._key:
            self._find(key, key_group)
        own = self.found
        if own is None or element not in own.values:
            return None
        if not self._is_own:
            own = self._to_change()
        values = own.values
        before = values.pop(element)
        if not values:
            self._drop()
        self.sizes[key_group] -= 1
        if self._due_time is not None:
            self.due.forget(self._due_time(element, before), (key_group, key, element))
        return before

    def take(self, key: Key, key_group: int) -> Elements[E, V] | None:
        """Remove all elements of a key and return them; None if the key has none. The caller may
        keep the returned object for `put_back`, but must not change it."""
        self._find(key, key_group)
        elements = self.found
        if elements is None:
            return None
        self._drop()
        elements.is_kept = True
        self.sizes[key_group] -= len(elements.values)
        for entry, due_ms in self._due_entries(key, key_group, elements):
            self.due.forget(due_ms, entry)
        return elements

    def put_back(self, key: Key, key_group: int, elements: Elements[E, V]) -> None:
        """Undo a `take`: `elements` are the result of `take`. The key must have no elements now."""
        self._find(key, key_group)
        self._insert(key, elements)
        self._is_own = False  # the caller still keeps the elements and may put them back again
        self.sizes[key_group] = self.sizes.get(key_group, 0) + len(elements.values)
        for entry, due_ms in self._due_entries(key, key_group, elements):
            self.due.note(due_ms, entry)

    def __len__(self) -> int:
        return sum(self.sizes.values())

    def memory_bytes(self, looked_at: int) -> int:
        """Estimate the bytes of elements, keys and index from about `looked_at` keys. See
        heap_memory."""
        return bytes_of_elements(self._maps.maps(), len(self), self._due_bytes, looked_at)

    def _due_bytes(self, element: E, value: V) -> float:
        """Return an element's share of the index, in bytes."""
        if self._due_time is None:
            return 0
        return self.due.bytes_of_entry(self._due_time(element, value))

    def snapshot(
        self, key_groups: KeyGroupRange
    ) -> CopyOnWriteStateTableSnapshot[Key, Elements[E, V]]:
        """Take a snapshot of the elements of `key_groups`, without copying the elements."""
        self._is_own = False
        return self._maps.snapshot(key_groups)

    def _find(self, key: Key, key_group: int) -> None:
        self._map = self._maps.map_for(key_group)
        entry = self._entry = self._map.find(key)
        self.found = None if entry is None else entry.state
        self._key = key
        self._is_own = False

    def _to_change(self) -> Elements[E, V]:
        """Return the elements that `_find` found, as a copy if a snapshot or a caller keeps the
        elements. The result may be changed in place until the next snapshot."""
        entry = self._entry
        assert entry is not None, "elements were found"
        if entry.state.is_kept:
            entry = self._map.replace(entry, entry.state.copy())
        else:
            entry = self._map.own_found(entry)
        self._entry, self.found, self._is_own = entry, entry.state, True
        return entry.state

    def _insert(self, key: Key, elements: Elements[E, V]) -> Elements[E, V]:
        """Set the elements of a key for which `_find` found no elements."""
        self._entry = self._map.insert(key, elements)
        self.found, self._is_own = elements, True
        return elements

    def _drop(self) -> None:
        """Remove the key whose elements `_find` found."""
        assert self._entry is not None, "elements were found"
        self._map.remove_found(self._entry)
        self._entry = self.found = None
        self._is_own = False

    def _due_entries(
        self, key: Key, key_group: int, elements: Elements[E, V]
    ) -> Iterator[tuple[tuple[int, Key, E], int]]:
        if self._due_time is not None:
            for element, value in elements.values.items():
                yield (key_group, key, element), self._due_time(element, value)
