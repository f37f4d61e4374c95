"""The elements of a list state, a map state or timers on the heap, with the changes of an epoch.

For every key that the current epoch changed, the table has an undo record:

    elements   element -> value before the epoch (None: absent), for each element that the epoch
               changed; changes after a clear of the key are not noted
    cleared    if the epoch cleared the key: all elements of the key right before the first clear

The undo records also tell which elements go to the epoch's changelog. So the changelog and a
rollback cost O(changes) (I6, I7), however many elements a key has. The last sealed epoch can be
undone until the next epoch is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from sys import getsizeof
from typing import Any, Generic, TypeVar

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.frozen_keys import in_order
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.due_index import DueEntry
from spark_state.heap.element_maps import ElementMaps, Elements
from spark_state.keyed_state.current_key import CurrentKey, Key
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.keyed_state.object_sizes import FEW, bytes_of, bytes_of_entries
from spark_state.keyed_state.state_rows import StateEntries, StateSerializer

E = TypeVar("E")
V = TypeVar("V")


class _KeyBefore(Generic[E, V]):
    """The undo record of one key for one epoch, see the module. `now`: the current elements of the
    key, None if the key has none; noted here to save a look-up."""

    __slots__ = ("cleared", "elements", "is_cleared", "key_group", "now")

    def __init__(self, key_group: int) -> None:
        self.key_group = key_group
        self.elements: dict[E, V | None] = {}
        self.is_cleared = False
        self.cleared: Elements[E, V] | None = None
        self.now: Elements[E, V] | None = None

    def had_any(self) -> bool:
        """Return True if the key had an element before the epoch."""
        if any(value is not None for value in self.elements.values()):
            return True
        return self.cleared is not None and not self.cleared.values.keys() <= self.elements.keys()

    def changed(self) -> int:
        """Upper bound of the number of elements that the epoch changed."""
        if not self.is_cleared:
            return len(self.elements)
        # Changes after a clear are not noted, so every current element may be new.
        return len(self.elements) + (0 if self.now is None else len(self.now.values))

    def undo_bytes(self) -> int:
        """Estimate the bytes of the record, without `now`, which counts as part of the maps."""
        cleared = 0 if self.cleared is None else bytes_of(self.cleared.values)
        return getsizeof(self) + bytes_of(self.elements) + cleared

    def rows(self) -> list[tuple[E, V | None] | None]:
        """Return the changelog rows of the key. If the epoch cleared the key, the first row is
        None, which deletes all elements."""
        now: dict[E, V] = {} if self.now is None else self.now.values
        if self.is_cleared:
            cleared = [None] if self.had_any() else []
            return [*cleared, *now.items()]
        return [
            (element, value)
            for element, before in self.elements.items()
            if (value := now.get(element)) is not None or before is not None
        ]


class HeapElementTable(Generic[E, V]):
    """The elements of one state, with the changes of the current and the last sealed epoch: a
    KeyedElementTable and BackendTable.

    `serializer`: converts rows, which are (element, value) or None, to files and back, see
    ElementRow. `due_time`: returns the due time of an element; None if elements never become due.
    """

    def __init__(
        self,
        name: str,
        serializer: StateSerializer[Any],
        key_groups: KeyGroupRange,
        current: CurrentKey,
        due_time: DueTime | None = None,
    ) -> None:
        self.name = name
        self.serializer = serializer
        self._maps: ElementMaps[E, V] = ElementMaps(key_groups, due_time)
        self._before: dict[Key, _KeyBefore[E, V]] = {}
        self._sealed: dict[Key, _KeyBefore[E, V]] = {}
        self._current = current
        self._noted_key: Key | None = None
        self._of_key: _KeyBefore[E, V] | None = None  # record of _noted_key, to save a look-up

    def __len__(self) -> int:
        return len(self._maps)

    def exists(self) -> bool:
        return self._maps.get(self._current.key, self._current.key_group) is not None

    def get(self, element: E) -> V | None:
        elements = self._maps.get(self._current.key, self._current.key_group)
        return None if elements is None else elements.values.get(element)

    def put(self, element: E, value: V) -> None:
        current, maps = self._current, self._maps
        before = maps.put(current.key, current.key_group, element, value)
        of_key = self._noted()
        of_key.now = maps.found
        if not of_key.is_cleared and element not in of_key.elements:
            of_key.elements[element] = before

    def append(self, values: Sequence[V]) -> None:
        elements = self._maps.get(self._current.key, self._current.key_group)
        number: Any = 0 if elements is None else elements.next_number
        for value in values:
            self.put(number, value)
            number += 1

    def remove(self, element: E) -> None:
        current, maps = self._current, self._maps
        before = maps.remove(current.key, current.key_group, element)
        if before is not None:
            of_key = self._noted()
            of_key.now = maps.found
            if not of_key.is_cleared and element not in of_key.elements:
                of_key.elements[element] = before

    def elements(self) -> list[tuple[E, V]]:
        elements = self._maps.get(self._current.key, self._current.key_group)
        values = {} if elements is None else elements.values
        return [(element, values[element]) for element in in_order(values)]

    def clear(self) -> None:
        elements = self._maps.take(self._current.key, self._current.key_group)
        if elements is not None:
            of_key = self._noted()
            of_key.now = None
            if not of_key.is_cleared:
                of_key.is_cleared, of_key.cleared = True, elements

    def _noted(self) -> _KeyBefore[E, V]:
        """Return the undo record of the current key. Creates the record at the first change."""
        key, of_key = self._current.key, self._of_key
        if of_key is None or self._noted_key is not key:
            of_key = self._before.get(key)
            if of_key is None:
                of_key = self._before[key] = _KeyBefore(self._current.key_group)
            self._noted_key, self._of_key = key, of_key
        return of_key

    def next_due_ms(self) -> int | None:
        """Return the earliest due time in milliseconds since 1970, None if there is no element with
        a due time."""
        return self._maps.due.next_ms()

    def due(self, until_ms: int) -> Iterator[tuple[int, DueEntry]]:
        """Yield the elements due at `until_ms` or before, the earliest first, see DueIndex.due."""
        return self._maps.due.due(until_ms)

    def number_of_changes(self) -> int:
        return sum(before.changed() for before in self._before.values())

    def changes(self) -> StateEntries:
        """Return the changes of the current epoch: for each key the row of the clear, if any, and
        then the changed elements with their new values."""
        keys: list[Key] = []
        key_groups: list[int] = []
        states: list[tuple[E, V | None] | None] = []
        for key, before in self._before.items():
            key_group = before.key_group
            for row in before.rows():
                keys.append(key)
                key_groups.append(key_group)
                states.append(row)
        return StateEntries(self.name, self.serializer, keys, key_groups, states)

    def seal(self) -> None:
        self._sealed = self._end_changes()

    def rollback(self) -> None:
        self._put_back(self._end_changes())

    def undo_sealed(self) -> None:
        assert not self._before, "an epoch is running"
        sealed, self._sealed = self._sealed, {}
        self._put_back(sealed)

    def _end_changes(self) -> dict[Key, _KeyBefore[E, V]]:
        self._noted_key = self._of_key = None
        changes, self._before = self._before, {}
        return changes

    def _put_back(self, changes: dict[Key, _KeyBefore[E, V]]) -> None:
        maps = self._maps
        for key, before in changes.items():
            key_group = before.key_group
            if before.is_cleared:
                maps.take(key, key_group)
                if before.cleared is not None:
                    maps.put_back(key, key_group, before.cleared)
            for element, value in before.elements.items():
                if value is None:
                    maps.remove(key, key_group, element)
                else:
                    maps.put(key, key_group, element, value)

    def apply(self, entries: StateEntries) -> None:
        assert not self._before, "an epoch is running"
        maps = self._maps
        rows = zip(entries.keys, entries.key_groups, entries.states, strict=True)
        for key, key_group, state in rows:
            if state is None:
                maps.take(key, key_group)
            elif state[1] is None:
                maps.remove(key, key_group, state[0])
            else:
                maps.put(key, key_group, *state)
        self._sealed = {}

    def sizes(self) -> dict[int, int]:
        return self._maps.sizes

    def memory_bytes(self, looked_at: int = FEW) -> int:
        """Estimate the bytes of elements and keys from a sample of about `looked_at` keys, see
        heap_memory."""
        return self._maps.memory_bytes(looked_at)

    def undo_bytes(self, looked_at: int) -> int:
        """Estimate the bytes of the undo records of the current and the last sealed epoch."""
        return sum(
            bytes_of_entries(before, _KeyBefore.undo_bytes, looked_at)
            for before in (self._before, self._sealed)
        )

    def snapshot(
        self, key_groups: KeyGroupRange
    ) -> CopyOnWriteStateTableSnapshot[Key, Elements[E, V]]:
        """Take a snapshot of the elements of `key_groups`, without copying the elements."""
        return self._maps.snapshot(key_groups)

    @staticmethod
    def rows_of(elements: Elements[E, V]) -> Iterable[tuple[E, V]]:
        """Return the elements of one key as rows for a file: pairs of element and value."""
        return elements.values.items()
