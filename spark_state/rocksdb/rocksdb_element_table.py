"""The elements of a list state, a map state or timers in RocksDB, with the changes of an epoch.

Each element is a row, so a change reads and writes only the changed elements. Memory has for each
key the reads and changes of the current epoch:

    held         element -> value in the database (None: absent), if already read
    now          element -> value that the epoch has set (None: removed)
    is_cleared   True if the epoch has cleared the key; then values in the database do not count

The database has the elements as of the last sealed epoch. So a rollback drops the changes from
memory, `seal` writes the changes to the database, and both cost O(changes) (I6, I7). Clearing a key
costs as much as removing each element of the key. For an undo, memory also has the old values of
the elements that the last sealed epoch changed, until the next epoch is sealed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import repeat
from sys import getsizeof
from typing import Any, Generic, TypeVar

from spark_state.frozen_keys import in_order
from spark_state.keyed_state.current_key import CurrentKey, Key
from spark_state.keyed_state.object_sizes import bytes_of, bytes_of_entries
from spark_state.keyed_state.state_rows import StateEntries
from spark_state.rocksdb.database import Batch, ColumnFamily, Database, range_end
from spark_state.rocksdb.due_rows import Due, DueRows
from spark_state.rocksdb.ordered_bytes import encode_int
from spark_state.rocksdb.state_rows_format import StateRowsFormat

E = TypeVar("E")
V = TypeVar("V")

_LAST_NUMBER = encode_int((1 << 63) - 1)


class _OfKey(Generic[E, V]):
    """The reads and changes of one key in the current epoch, see the module. `rows`: the bytes with
    which all rows of the key begin. `next_number`: the number of the next appended element, None if
    not known yet."""

    __slots__ = ("held", "is_cleared", "key", "key_group", "next_number", "now", "rows")

    def __init__(self, key: Key, key_group: int, rows: bytes) -> None:
        self.key = key
        self.key_group = key_group
        self.rows = rows
        self.held: dict[E, V | None] = {}
        self.now: dict[E, V | None] = {}
        self.is_cleared = False
        self.next_number: int | None = None

    def changed(self) -> Iterator[tuple[E, V | None, V | None]]:
        """Yield each element that the epoch changed, with its old and its new value (None:
        absent)."""
        held, now = self.held, self.now
        for element in {**held, **now} if self.is_cleared else now:
            yield element, held.get(element), now.get(element)

    def rows_of_changes(self) -> list[tuple[E, V | None] | None]:
        """Return the changes as rows of a file. If the epoch cleared the key, the first row is
        None, which deletes all elements."""
        if not self.is_cleared:
            return [
                (element, now)
                for element, before, now in self.changed()
                if before is not None or now is not None
            ]
        had_any = any(value is not None for value in self.held.values())
        return [*([None] if had_any else []), *self.now.items()]

    def bytes_on_heap(self) -> int:
        """Estimate the bytes of this object and the dictionaries."""
        held = bytes_of(self.rows) + bytes_of(self.held) + bytes_of(self.now)
        return getsizeof(self) + held

    def more(self) -> int:
        """Return the number of elements after the epoch minus the number before."""
        return sum((now is not None) - (before is not None) for _, before, now in self.changed())


class RocksDBElementTable(Generic[E, V]):
    """A KeyedElementTable and BackendTable whose rows are in a database, see RocksDBStateTable.
    `due`: the due times, None if elements never become due."""

    def __init__(
        self,
        rows: StateRowsFormat,
        family: ColumnFamily,
        counts: Counter[int],
        database: Database,
        current: CurrentKey,
        due: DueRows | None,
    ) -> None:
        self.format = rows
        self.counts = counts
        self.family = family
        self._database = database
        self._current = current
        self._due = due
        self._of_keys: dict[Key, _OfKey[E, V]] = {}
        self._sealed: dict[Key, _OfKey[E, V]] = {}
        self._found: _OfKey[E, V] | None = None

    def __len__(self) -> int:
        return self.counts.total() + sum(of_key.more() for of_key in self._of_keys.values())

    def exists(self) -> bool:
        return self._exists(self._find())

    def get(self, element: E) -> V | None:
        return self._get(self._find(), element)

    def put(self, element: E, value: V) -> None:
        of_key = self._find()
        if not of_key.is_cleared:
            self._held(of_key, element)
        of_key.now[element] = value
        number: Any = element
        if of_key.next_number is not None and number >= of_key.next_number:
            of_key.next_number = number + 1

    def append(self, values: Sequence[V]) -> None:
        of_key: _OfKey[Any, V] = self._find()
        first = of_key.next_number
        if first is None:
            first = self._next_number(of_key)
        of_key.next_number = first + len(values)
        for number, value in enumerate(values, first):
            if not of_key.is_cleared:
                of_key.held[number] = None  # greater than all stored numbers
            of_key.now[number] = value

    def remove(self, element: E) -> None:
        of_key = self._find()
        if of_key.is_cleared:
            of_key.now.pop(element, None)
        elif self._get(of_key, element) is not None:
            of_key.now[element] = None

    def elements(self) -> list[tuple[E, V]]:
        of_key = self._find()
        values = dict(self._unchanged(of_key))
        values.update((e, value) for e, value in of_key.now.items() if value is not None)
        return [(element, values[element]) for element in in_order(values)]

    def clear(self) -> None:
        of_key = self._find()
        if not of_key.is_cleared and self._exists(of_key):
            # Read the stored elements: the commit deletes and counts the elements, and an undo puts
            # the elements back.
            of_key.held = dict(self._stored(of_key))
            of_key.is_cleared = True
        if of_key.is_cleared:
            of_key.now = {}
            of_key.next_number = None

    def _find(self) -> _OfKey[E, V]:
        key, of_key = self._current.key, self._found
        if of_key is None or of_key.key is not key:
            of_key = self._of_keys.get(key)
            if of_key is None:
                key_group = self._current.key_group
                of_key = _OfKey(key, key_group, self.format.keys.of_key(key, key_group))
                self._of_keys[key] = of_key
            self._found = of_key
        return of_key

    def _exists(self, of_key: _OfKey[E, V]) -> bool:
        if any(value is not None for value in of_key.now.values()):
            return True
        return next(self._unchanged(of_key), None) is not None

    def _get(self, of_key: _OfKey[E, V], element: E) -> V | None:
        if element in of_key.now:
            return of_key.now[element]
        return None if of_key.is_cleared else self._held(of_key, element)

    def _held(self, of_key: _OfKey[E, V], element: E) -> V | None:
        """Return the value that an element has in the database, None if absent."""
        try:
            return of_key.held[element]
        except KeyError:
            value = None
            if self.counts:
                data = self.family.get(of_key.rows + self.format.keys.encode_element(element))
                value = None if data is None else self.format.unpack(data)
            of_key.held[element] = value
            return value

    def _stored(self, of_key: _OfKey[E, V]) -> Iterator[tuple[E, V]]:
        """Read the elements of a key from the database. Yield each element and its value, sorted by
        the bytes of the elements."""
        element_of, unpack = self.format.keys.element, self.format.unpack
        start = len(of_key.rows)
        for row, data in self.family.rows(of_key.rows, range_end(of_key.rows)):
            yield element_of(row, start), unpack(data)

    def _unchanged(self, of_key: _OfKey[E, V]) -> Iterator[tuple[E, V]]:
        """Yield the elements of a key in the database that the epoch has not changed, with their
        values."""
        if of_key.is_cleared:
            return iter(())
        return (entry for entry in self._stored(of_key) if entry[0] not in of_key.now)

    def _next_number(self, of_key: _OfKey[Any, V]) -> int:
        last = -1
        if not of_key.is_cleared:
            row = self.family.last(of_key.rows + _LAST_NUMBER)
            if row is not None and row.startswith(of_key.rows):
                last = self.format.keys.element(row, len(of_key.rows))
        greatest: int = max([last, *of_key.now])
        return greatest + 1

    def next_due_ms(self) -> int | None:
        """Return the earliest due time in milliseconds since 1970, None if there is no element."""
        assert self._due is not None, "nothing is ever due"
        earliest = min((due[0] for due in self._due_changed(self._due)), default=None)
        return self._due.next_ms(earliest, self._has_changed)

    def due(self, until_ms: int) -> Iterator[Due]:
        """Yield the elements due at `until_ms` or before, the earliest first."""
        assert self._due is not None, "nothing is ever due"
        changed = [due for due in self._due_changed(self._due) if due[0] <= until_ms]
        unchanged = self._due.due(until_ms, self._has_changed)
        return heapq.merge(unchanged, sorted(changed, key=_time_of), key=_time_of)

    def _due_changed(self, rows: DueRows) -> Iterator[Due]:
        """Yield the elements that the current epoch has put, with their due times."""
        for of_key in self._of_keys.values():
            for element, value in of_key.now.items():
                if value is not None:
                    yield rows.due_time(element, value), (of_key.key_group, of_key.key, element)

    def _has_changed(self, key: Key, element: E) -> bool:
        of_key = self._of_keys.get(key)
        return of_key is not None and (of_key.is_cleared or element in of_key.now)

    def bytes_on_heap(self, looked_at: int) -> int:
        epochs = self._of_keys, self._sealed
        return sum(bytes_of_entries(of_keys, _OfKey.bytes_on_heap, looked_at) for of_keys in epochs)

    def forget_what_was_read(self) -> None:
        """Forget the elements read for each unchanged key, see KeyedStateBackend. The elements read
        for a changed key stay in memory."""
        self._of_keys = {
            key: of_key for key, of_key in self._of_keys.items() if of_key.now or of_key.is_cleared
        }
        self._found = None

    def sizes(self) -> dict[int, int]:
        return self.counts

    def number_of_changes(self) -> int:
        return sum(
            len(of_key.now) + (len(of_key.held) if of_key.is_cleared else 0)
            for of_key in self._of_keys.values()
        )

    def changes(self) -> StateEntries:
        """Return the changes of the current epoch: for each key the row of the clear, if any, and
        then the changed elements with their new values."""
        keys: list[Key] = []
        key_groups: list[int] = []
        states: list[tuple[E, V | None] | None] = []
        for of_key in self._of_keys.values():
            rows = of_key.rows_of_changes()
            keys.extend(repeat(of_key.key, len(rows)))
            key_groups.extend(repeat(of_key.key_group, len(rows)))
            states.extend(rows)
        return StateEntries(self.format.name, self.format.serializer, keys, key_groups, states)

    def seal(self) -> None:
        self._sealed = self._write()

    def rollback(self) -> None:
        self._forget()

    def undo_sealed(self) -> None:
        assert not self.number_of_changes(), "an epoch is running"
        batch, sealed = Batch(), self._sealed
        self._sealed = {}
        for of_key in sealed.values():
            self.counts[of_key.key_group] -= of_key.more()
            for element, before, now in of_key.changed():
                self._write_element(batch, of_key, element, (now, before))
        self._database.write(batch)
        self._forget()

    def apply(self, entries: StateEntries) -> None:
        assert not self.number_of_changes(), "an epoch is running"
        self._forget()
        current = self._current
        rows = zip(entries.keys, entries.key_groups, entries.states, strict=True)
        for current.key, current.key_group, state in rows:
            if state is None:
                self.clear()
            elif state[1] is None:
                self.remove(state[0])
            else:
                self.put(*state)
        self._write()
        self._sealed = {}

    def _write(self) -> dict[Key, _OfKey[E, V]]:
        """Write the changes of the epoch to the database, and drop all reads from memory. Return
        the changes by key."""
        batch, changed = Batch(), {}
        for key, of_key in self._of_keys.items():
            if of_key.now or of_key.is_cleared:
                changed[key] = of_key
                self.counts[of_key.key_group] += of_key.more()
                for element, before, now in of_key.changed():
                    self._write_element(batch, of_key, element, (before, now))
        self._database.write(batch)
        self._forget()
        return changed

    def _write_element(
        self, batch: Batch, of_key: _OfKey[E, V], element: E, change: tuple[V | None, V | None]
    ) -> None:
        """Write the new value and the new due time of an element. `change`: the old and the new
        value (None: absent)."""
        before, now = change
        encoded = self.format.keys.encode_element(element)
        if now is not None:
            batch.put(of_key.rows + encoded, self.format.pack(now), self.family.handle)
        elif before is not None:
            batch.delete(of_key.rows + encoded, self.family.handle)
        due = self._due
        if due is not None and before is not None:
            due.forget(batch, due.due_time(element, before), of_key.rows, encoded)
        if due is not None and now is not None:
            due.note(batch, due.due_time(element, now), of_key.rows, encoded)

    def _forget(self) -> None:
        self._of_keys = {}
        self._found = None

    def families(self) -> tuple[ColumnFamily, ...]:
        return (self.family,) if self._due is None else (self.family, self._due.family)


def _time_of(due: Due) -> int:
    return due[0]
