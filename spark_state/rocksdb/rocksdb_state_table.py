"""The values of one value state in RocksDB, with what an epoch changed.

What the running epoch has read or put is in memory, by key; the database holds the state after the
last sealed epoch. So a rollback forgets, a commit writes what was put, and both cost the changes
(I6, I7). The table keeps what was before the last sealed epoch, until the next one is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from spark_state.keyed_state.current_key import CurrentKey, Key
from spark_state.keyed_state.object_sizes import bytes_of, bytes_of_entries
from spark_state.keyed_state.state_rows import StateEntries, growth_of
from spark_state.rocksdb.database import Batch, ColumnFamily, Database
from spark_state.rocksdb.state_rows_format import StateRowsFormat
from spark_state.rocksdb.stored_rows import StoredRows

S = TypeVar("S")

# As the database holds them, packed. The others are read one by one.
_MOST_BYTES_AHEAD = 4 << 20
_ROWS_AT_ONCE = 4096
_FIRST_ROWS = 16


class _Change(NamedTuple, Generic[S]):
    """What an epoch made of a key: a state, or None."""

    key_group: int
    before: S | None
    now: S | None


class RocksDBStateTable(Generic[S]):
    """A KeyedStateTable whose rows are `stored` in a database."""

    def __init__(
        self, rows: StateRowsFormat, stored: StoredRows, database: Database, current: CurrentKey
    ) -> None:
        self.format = rows
        self.counts = stored.counts
        self.family = stored.family
        self._database = database
        self._current = current
        self._held: dict[Key, S | None] = {}  # what the database has, as far as it was read
        self._changes: dict[Key, _Change[S]] = {}
        self._sealed: dict[Key, _Change[S]] = {}
        self._is_used = True  # since keys were read ahead
        # The state of a key is looked up once, and not with every call.
        self._key: Key | None = None
        self._state: S | None = None

    def __len__(self) -> int:
        opened = sum(_more(change) for change in self._changes.values())
        return len(self.counts) + opened

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        """Read the states of keys that are about to be handled, together and in order, as far as
        they are not large; unless nobody has looked at those that were read ahead before."""
        if self._is_used:
            self._is_used = False
            self._read(zip(keys, key_groups, strict=True), _MOST_BYTES_AHEAD)

    def _read(self, keys: Iterable[tuple[Key, int]], most_bytes: int) -> None:
        """Read the states of keys, with their key groups, until there are `most_bytes` or somewhat
        more: at first few, because nobody knows how large they are."""
        of_key, held = self.format.keys.of_key, self._held
        wanted = {of_key(key, key_group): key for key, key_group in keys if key not in held}
        in_order = sorted(wanted)
        first, read_bytes = 0, 0
        while first < len(in_order) and read_bytes < most_bytes:
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

    def put(self, state: S) -> None:
        self._set(state)

    def remove(self) -> None:
        if self.get() is not None:
            self._set(None)

    def _set(self, state: S | None) -> None:
        key = self._current.key
        change = self._changes.get(key)
        if change is None:
            before = self._of_database(key)
            del self._held[key]  # the change has it
        else:
            before = change.before
        self._changes[key] = _Change(self._current.key_group, before, state)
        self._key, self._state = key, state

    def bytes_on_heap(self, looked_at: int) -> int:
        """See KeyedStateBackend."""
        return bytes_of_entries(self._held, bytes_of, looked_at) + sum(
            bytes_of_entries(changes, bytes_of, looked_at)
            for changes in (self._changes, self._sealed)
        )

    def forget_what_was_read(self) -> None:
        """See KeyedStateBackend. A change knows what was before it."""
        self._held = {}

    def sizes(self) -> dict[int, int]:
        """The number of entries by key group, after the last sealed epoch."""
        return self.counts.by_key_group()

    def number_of_changes(self) -> int:
        """How many keys the running epoch has changed."""
        return len(self._changes)

    def changes(self) -> StateEntries:
        """What the running epoch changed, with the states as they are now."""
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
        """End the running epoch; it can be undone until the next one is sealed."""
        changes = self._changes
        of_key = self.format.keys.of_key
        self._write((of_key(key, change.key_group), change.now) for key, change in changes.items())
        for change in changes.values():
            self.counts.add(change.key_group, _more(change))
        self._forget()
        self._sealed = changes

    def rollback(self) -> None:
        """Forget what the running epoch changed."""
        self._forget()

    def undo_sealed(self) -> None:
        """Put back what the last sealed epoch changed. The running epoch must be unchanged."""
        assert not self._changes, "an epoch is running"
        sealed, self._sealed = self._sealed, {}
        of_key = self.format.keys.of_key
        self._write(
            (of_key(key, change.key_group), change.before) for key, change in sealed.items()
        )
        for change in sealed.values():
            self.counts.add(change.key_group, -_more(change))
        self._forget()

    def apply(self, entries: StateEntries) -> None:
        """Apply entries of a file to the base state; nothing of it can be undone. The running epoch
        must be unchanged."""
        assert not self._changes, "an epoch is running"
        self._forget()
        self._sealed = {}
        add = self.counts.add
        rows = self.format.keys.of_keys(entries.keys, entries.key_groups)
        assert len(rows) == len(entries.states)
        if entries.growth is not None:
            # Which keys are new need not be known. The last entry of a key comes last.
            for key_group, more in entries.growth.items():
                add(key_group, more)
            if None in entries.states:
                self._write(zip(rows, entries.states, strict=True))
            else:
                self._put_all(rows, entries.states)
            return
        # The last entry of a key counts.
        states = dict(zip(rows, zip(entries.key_groups, entries.states, strict=True), strict=True))
        in_order = sorted(states)
        is_empty = not len(self.counts)
        held = repeat(None) if is_empty else self._held_at_once(in_order)
        for row, data in zip(in_order, held, strict=False):
            key_group, state = states[row]
            add(key_group, (state is not None) - (data is not None))
        self._write((row, states[row][1]) for row in in_order)

    def _held_at_once(self, rows: list[bytes]) -> Iterator[bytes | None]:
        """What the database has of these rows, which are in order, some at a time."""
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            yield from self.family.get_many(rows[first : first + _ROWS_AT_ONCE])

    def _put_all(self, rows: Iterable[bytes], states: Iterable[S]) -> None:
        """Write the states of rows. None of them is None."""
        batch = Batch()
        batch.put_all(rows, map(self.format.pack, states), self.family.handle)
        self._database.write(batch)

    def _write(self, states: Iterable[tuple[bytes, S | None]]) -> None:
        """Write the states of rows."""
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
        """Its column families."""
        return (self.family,)


def _more(change: _Change[Any]) -> int:
    """How many entries more there are after a change."""
    return (change.now is not None) - (change.before is not None)
