"""The values of one value state in RocksDB, with the changes of an epoch.

Memory has the reads and changes of the current epoch, by key. The database has the values as of the
last sealed epoch. So a rollback drops the changes from memory, `seal` writes the changes to the
database, and both cost O(changes) (I6, I7). For an undo, memory also has the old values of the keys
that the last sealed epoch changed, until the next epoch is sealed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from spark_state.keyed_state.current_key import CurrentKey, Key
from spark_state.keyed_state.object_sizes import bytes_of, bytes_of_entries
from spark_state.keyed_state.state_rows import StateEntries, growth_of
from spark_state.rocksdb.database import Batch, ColumnFamily, Database
from spark_state.rocksdb.state_rows_format import StateRowsFormat

S = TypeVar("S")

# Limit for reading ahead, in bytes of packed values. All other values are read one by one.
_MOST_BYTES_AHEAD = 4 << 20
_ROWS_AT_ONCE = 4096
_FIRST_ROWS = 16


class _Change(NamedTuple, Generic[S]):
    """A change of a key by an epoch. `before`: the state before the epoch, `now`: the state after
    the change; None if absent."""

    key_group: int
    before: S | None
    now: S | None


class RocksDBStateTable(Generic[S]):
    """A KeyedStateTable and BackendTable whose rows are in a database. `family`: the column family
    of the rows. `counts`: the number of entries of each key group, which RocksDB does not know."""

    def __init__(
        self,
        rows: StateRowsFormat,
        family: ColumnFamily,
        counts: Counter[int],
        database: Database,
        current: CurrentKey,
    ) -> None:
        self.format = rows
        self.counts = counts
        self.family = family
        self._database = database
        self._current = current
        self._held: dict[Key, S | None] = {}  # values read from the database
        self._changes: dict[Key, _Change[S]] = {}
        self._sealed: dict[Key, _Change[S]] = {}
        self._is_used = True  # True if read since the last read-ahead
        # The state of the last key is cached, so several calls for one key need one look-up.
        self._key: Key | None = None
        self._state: S | None = None

    def __len__(self) -> int:
        return self.counts.total() + sum(_more(change) for change in self._changes.values())

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        """Read the states of keys that the processor handles next, in sorted order and many at
        once, up to a limit of bytes. Does nothing if the processor has read no state since the last
        call."""
        if not self._is_used:
            return
        self._is_used = False
        of_key, held = self.format.keys.of_key, self._held
        with_groups = zip(keys, key_groups, strict=True)
        wanted = {
            of_key(key, key_group): key
            for key, key_group in with_groups
            if key not in held and key not in self._changes
        }
        in_order = sorted(wanted)
        # The first read is small, because the size of a state is not known yet.
        first, read_bytes = 0, 0
        while first < len(in_order) and read_bytes < _MOST_BYTES_AHEAD:
            rows = in_order[first : first + max(first, _FIRST_ROWS)]
            first += len(rows)
            for row, data in zip(rows, self.family.get_many(rows), strict=True):
                if data is None:
                    held[wanted[row]] = None
                else:
                    held[wanted[row]] = self.format.unpack(data)
                    read_bytes += len(data)

    def _find(self) -> None:
        key = self._current.key
        self._is_used = True
        change = self._changes.get(key)
        self._state = self._of_database(key) if change is None else change.now
        self._key = key

    def _of_database(self, key: Key) -> S | None:
        try:
            return self._held[key]
        except KeyError:
            data = self.family.get(self.format.keys.of_key(key, self._current.key_group))
            state = self._held[key] = None if data is None else self.format.unpack(data)
            return state

    def get(self) -> S | None:
        if self._key is not self._current.key:
            self._find()
        return self._state

    def remove(self) -> None:
        if self.get() is not None:
            self.put(None)

    def put(self, state: S | None) -> None:
        key = self._current.key
        change = self._changes.get(key)
        if change is None:
            before = self._of_database(key)
            del self._held[key]  # the change has the value
        else:
            before = change.before
        self._changes[key] = _Change(self._current.key_group, before, state)
        self._key, self._state = key, state

    def bytes_on_heap(self, looked_at: int) -> int:
        return bytes_of_entries(self._held, bytes_of, looked_at) + sum(
            bytes_of_entries(changes, bytes_of, looked_at)
            for changes in (self._changes, self._sealed)
        )

    def forget_what_was_read(self) -> None:
        """Drop unchanged values from memory, see KeyedStateBackend. Changes keep their old
        values."""
        self._held = {}

    def sizes(self) -> dict[int, int]:
        return self.counts

    def number_of_changes(self) -> int:
        return len(self._changes)

    def changes(self) -> StateEntries:
        changed = self._changes.values()
        return StateEntries(
            self.format.name,
            self.format.serializer,
            list(self._changes),
            [change.key_group for change in changed],
            [change.now for change in changed],
            growth_of(changed),
        )

    def seal(self) -> None:
        changes = self._changes
        of_key = self.format.keys.of_key
        self._write((of_key(key, change.key_group), change.now) for key, change in changes.items())
        for change in changes.values():
            self.counts[change.key_group] += _more(change)
        self._forget()
        self._sealed = changes

    def rollback(self) -> None:
        self._forget()

    def undo_sealed(self) -> None:
        assert not self._changes, "an epoch is running"
        sealed, self._sealed = self._sealed, {}
        of_key = self.format.keys.of_key
        self._write(
            (of_key(key, change.key_group), change.before) for key, change in sealed.items()
        )
        for change in sealed.values():
            self.counts[change.key_group] -= _more(change)
        self._forget()

    def apply(self, entries: StateEntries) -> None:
        assert not self._changes, "an epoch is running"
        self._forget()
        self._sealed = {}
        rows = self.format.keys.of_keys(entries.keys, entries.key_groups)
        assert len(rows) == len(entries.states)
        if entries.growth is not None:
            # With a known growth, new keys need no look-up. The last entry of a key is written
            # last.
            self.counts.update(entries.growth)
            if None in entries.states:
                self._write(zip(rows, entries.states, strict=True))
            else:
                self._put_all(rows, entries.states)
            return
        # Only the last entry of a key counts.
        states = dict(zip(rows, zip(entries.key_groups, entries.states, strict=True), strict=True))
        in_order = sorted(states)
        held = self._held_at_once(in_order) if self.counts.total() else repeat(None)
        for row, data in zip(in_order, held, strict=False):
            key_group, state = states[row]
            self.counts[key_group] += (state is not None) - (data is not None)
        self._write((row, states[row][1]) for row in in_order)

    def _held_at_once(self, rows: list[bytes]) -> Iterator[bytes | None]:
        """Look up sorted keys of rows in the database, many at once. Yields for each the bytes of
        the value, None for an absent row."""
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            yield from self.family.get_many(rows[first : first + _ROWS_AT_ONCE])

    def _put_all(self, rows: Iterable[bytes], states: Iterable[S]) -> None:
        """Write rows to the database. `rows`: keys of the rows; `states`: the state of each row,
        never None."""
        batch = Batch()
        batch.put_all(rows, map(self.format.pack, states), self.family.handle)
        self._database.write(batch)

    def _write(self, states: Iterable[tuple[bytes, S | None]]) -> None:
        """Write pairs of a row's key and its state to the database. If the state is None, the row
        is deleted."""
        batch, handle, pack = Batch(), self.family.handle, self.format.pack
        for row, state in states:
            if state is None:
                batch.delete(row, handle)
            else:
                batch.put(row, pack(state), handle)
        self._database.write(batch)

    def _forget(self) -> None:
        self._held, self._changes = {}, {}
        self._is_used = True
        self._key = self._state = None

    def families(self) -> tuple[ColumnFamily, ...]:
        return (self.family,)


def _more(change: _Change[Any]) -> int:
    """Return the number of entries after a change minus the number before."""
    return (change.now is not None) - (change.before is not None)
