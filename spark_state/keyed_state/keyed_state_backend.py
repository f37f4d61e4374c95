"""The base of all keyed state backends.

A backend has one table per state, with the entries of the subtask's key groups. `open_table`
registers a state under its name. A restore registers the stored states, and a run of the processor
registers the states that the processor declares. If a state is registered twice, the schema must be
the same. A stored state that the processor does not declare is kept, and still written to files.

An epoch is a call of `begin`, any number of calls of `set_current_key` and of states, and then
`changes` and `seal`, or `rollback`. One thread at a time uses a backend; only snapshots may be used
in other threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from checkpoint_store.files.entry_growth import Growth, noted_growth
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from spark_state.codecs.codec import Forms
from spark_state.frozen_keys import in_order
from spark_state.keyed_state.current_key import CurrentKey, Key
from spark_state.keyed_state.expiring_tables import EpochClock
from spark_state.keyed_state.full_snapshot import FullSnapshot, KeyedStateSnapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.keyed_state.object_sizes import FEW
from spark_state.keyed_state.schema_evolution import check_evolution
from spark_state.keyed_state.state_kinds import OpenTable, State, form_of, state_of_key
from spark_state.keyed_state.state_rows import (
    StateEntries,
    StateRows,
    StateSerializer,
    from_batch,
    state_columns,
    to_table,
)
from spark_state.keyed_state.timers import Timers
from spark_state.state_descriptor import StateDescriptor


class Due(NamedTuple):
    """A due element of a key: a timer to fire, or an expired value."""

    time_ms: int
    key: Key
    key_group: int
    element: Any


class BackendTable(Protocol):
    """The table of a state of any kind, with the methods that a backend calls."""

    def __len__(self) -> int:
        """Return the number of entries."""

    def sizes(self) -> dict[int, int]:
        """Return the number of entries by key group, as of the last sealed epoch."""

    def number_of_changes(self) -> int:
        """Upper bound of the number of values or elements that the current epoch changed."""

    def changes(self) -> StateEntries:
        """Return the changes of the current epoch."""

    def seal(self) -> None:
        """End the current epoch. The epoch can be undone until the next seal."""

    def rollback(self) -> None:
        """Undo the changes of the current epoch."""

    def undo_sealed(self) -> None:
        """Undo the changes of the last sealed epoch. The current epoch must have no changes."""

    def apply(self, entries: StateEntries) -> None:
        """Apply rows of a file to the sealed state; this cannot be undone. The current epoch must
        have no changes."""


Table = TypeVar("Table", bound=BackendTable)

FileToApply = tuple[Iterable[pa.RecordBatch], Collection[str] | None]
"""The batches of a file, and the names of the states whose rows are applied (None: all states)."""


@dataclass(frozen=True, slots=True)
class BackendState(Generic[Table]):
    """A state of a backend: descriptor, serializer of the rows of files, and table."""

    descriptor: StateDescriptor
    serializer: StateSerializer[Any]
    table: Table


class KeyedStateBackend(ABC, Generic[Table]):
    """The states of one subtask.

    - `key_groups`: the range of the subtask.
    - `key_columns`: the columns of the grouping key.
    - `forms`: the Python forms of values in states.
    """

    def __init__(self, key_groups: KeyGroupRange, key_columns: KeyColumns, forms: Forms) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._forms = forms
        self._clock = EpochClock()
        self._current = CurrentKey(key_groups.start)
        self._states: dict[str, BackendState[Table]] = {}
        # States that an epoch dropped. The drop can still be undone.
        self._dropped: dict[str, BackendState[Table]] = {}
        self._sealed_dropped: dict[str, BackendState[Table]] = {}

    @property
    def descriptors(self) -> tuple[StateDescriptor, ...]:
        """All states, also states in the store that the processor does not declare."""
        return tuple(state.descriptor for state in self._states.values())

    @property
    def _tables(self) -> list[Table]:
        return [state.table for state in self._states.values()]

    def state(self, descriptor: StateDescriptor) -> State:
        """Register a state and return an object that works on the state of the current key. Raises
        the errors of `open_table`."""
        return state_of_key(self.open_table(descriptor))

    def open_table(self, descriptor: StateDescriptor) -> OpenTable:
        """Register a state and return the state's table.

        To restore a state, register the state before its files are applied. If the processor
        declares a new schema for a stored state, register the new schema.

        If a state of this name is already registered, the table stays, and the schema must be the
        same. `ttl_ms` may be another number; values put before keep their expiry time. Raises
        StateMigrationError, see check_evolution.
        """
        name = descriptor.name
        form = form_of(descriptor, self._forms, self._clock)
        held = self._states.get(name)
        if held is not None:
            check_evolution(held.descriptor, descriptor)
            same = held.descriptor.value_type == descriptor.value_type
            assert same, "values are held in the other form"
            table = held.table
        elif form.has_elements:
            table = self._new_element_table(descriptor, form.serializer, form.due_time)
        else:
            table = self._new_value_table(descriptor, form.serializer)
        self._states[name] = BackendState(descriptor, form.serializer, table)
        return OpenTable(descriptor.kind, form.seen(table), form.values)

    def drop(self, name: str) -> bool:
        """Delete a state with all entries, and return True if the state existed. Changes of the
        state in the current epoch are lost, too, so drop states before any other change."""
        if name not in self._states:
            return False
        self._dropped[name] = self._states.pop(name)
        return True

    def begin(self, now_ms: int) -> None:
        """Begin an epoch at `now_ms`, in milliseconds since 1970. Values with an expiry time up to
        `now_ms` are expired."""
        self._clock.now_ms = now_ms

    def timers(self, name: str) -> Timers:
        """Return an object for the timers of the current key. `name`: the state with the timers."""
        table: Any = self._states[name].table
        return Timers(table)

    def next_timer_ms(self) -> int | None:
        """Return the earliest time of all timers, in ms since 1970; None if there is no timer."""
        times = [table.next_due_ms() for table in self._timer_tables()]
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def number_of_timers(self) -> int:
        """Return the number of registered timers."""
        return sum(map(len, self._timer_tables()))

    def _timer_tables(self) -> list[Any]:
        return [state.table for state in self._states.values() if state.descriptor.kind == "timers"]

    def memory_bytes(self) -> int | None:
        """Estimate the bytes of memory that the entries take. The cost does not grow with the
        number of entries. None if the backend has no estimate."""
        return None

    @abstractmethod
    def bytes_on_heap(self, looked_at: int = FEW) -> int:
        """Estimate the bytes of the backend's Python objects: entries, values read and changed in
        the current epoch, and undo records.

        The estimate looks at about `looked_at` entries of each state. With `looked_at` = FEW the
        estimate costs next to nothing; with more entries, it also walks through all changes and
        undo records.
        """

    def forget_what_was_read(self) -> None:
        """Drop from memory the values that the current epoch has read and not changed."""

    def has_failed(self) -> bool:
        """Return True if the backend refuses changes or has lost changes. Such a backend must be
        restored from files."""
        return False

    def due_timers(self, name: str, until_ms: int) -> list[Due]:
        """Return the due timers of a state, the earliest first. Timers with the same time come in
        the order of their keys."""
        return [
            timer
            for _, timers in groupby(self._due(name, until_ms), attrgetter("time_ms"))
            for timer in _in_order_of_keys(timers)
        ]

    def remove_expired(self, most: int) -> int:
        """Remove up to `most` expired values. Returns the number of removed values."""
        removed = 0
        for name, state in self._states.items():
            if state.descriptor.ttl_ms is None:
                continue
            table: Any = state.table
            for expired in [*islice(self._due(name, self._clock.now_ms), most - removed)]:
                self.set_current_key(expired.key, expired.key_group)
                table.remove(expired.element)
                removed += 1
        return removed

    @abstractmethod
    def _new_value_table(
        self, descriptor: StateDescriptor, serializer: StateSerializer[Any]
    ) -> Table:
        """Create the KeyedStateTable of a state."""

    @abstractmethod
    def _new_element_table(
        self,
        descriptor: StateDescriptor,
        serializer: StateSerializer[Any],
        due_time: DueTime | None,
    ) -> Table:
        """Create the KeyedElementTable of a state. `due_time`: see StateForm."""

    def _due(self, name: str, until_ms: int) -> Iterator[Due]:
        """Yield the elements of a state that are due at `until_ms` or before, earliest first. The
        state must not change during the iteration."""
        table: Any = self._states[name].table
        for time_ms, (key_group, key, element) in table.due(until_ms):
            yield Due(time_ms, key, key_group, element)

    def number_of_changes(self) -> int:
        """Upper bound of the number of values and elements that the current epoch changed."""
        return sum(table.number_of_changes() for table in self._tables)

    def __len__(self) -> int:
        """Return the number of entries of all states."""
        return sum(map(len, self._tables))

    def entries_by_key_group(self) -> Sequence[int]:
        """Return the number of entries of each key group, in the order of the key groups."""
        entries = [0] * len(self.key_groups)
        for table in self._tables:
            for key_group, size in table.sizes().items():
                entries[key_group - self.key_groups.start] += size
        return entries

    def _delete(self, table: Table) -> None:
        """Delete the table of a dropped state. Called when the drop can no longer be undone."""

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        """Announce the keys that the processor handles next, so that a backend can read their
        values together."""

    @property
    def current_key(self) -> Key:
        """The key that states read and write."""
        return self._current.key

    def set_current_key(self, key: Key, key_group: int) -> None:
        """Set the key that states read and write from now on."""
        current = self._current
        current.key = key
        current.key_group = key_group

    def changes(self) -> pa.Table:
        """Return the changes of the current epoch as rows of a changelog file. Raises
        StateHostError if a read failed."""
        return to_table(self._key_columns, [table.changes() for table in self._tables])

    def seal(self) -> None:
        """End the current epoch. The epoch can be undone until the next seal."""
        for table in self._tables:
            table.seal()
        for state in self._sealed_dropped.values():
            self._delete(state.table)
        self._sealed_dropped, self._dropped = self._dropped, {}

    def rollback(self) -> None:
        """Undo the changes of the current epoch."""
        for table in self._tables:
            table.rollback()
        self._states |= self._dropped
        self._dropped = {}

    def undo_sealed(self) -> None:
        """Undo the last sealed epoch."""
        for table in self._tables:
            table.undo_sealed()
        self._states |= self._sealed_dropped
        self._sealed_dropped = {}

    def apply(
        self, batches: Iterable[pa.RecordBatch], states: Collection[str] | None = None
    ) -> None:
        """Apply the rows of a file to the states named `states` (None: to all states), in the order
        of the file.

        The states must be registered, and the current epoch must have no changes. `batches`: the
        file's rows of the backend's key groups.
        """
        growth: Growth | None = None
        for batch in batches:
            if growth is None:
                growth = noted_growth(batch.schema)
            for rows in self._rows_of_states(batch, states):
                self._states[rows.name].table.apply(_with_growth(rows.entries(), growth))

    def restore(self, files: Iterable[FileToApply]) -> None:
        """Apply the rows of files to a new backend, see `apply`. A RocksDB backend may already have
        the entries of restored databases."""
        for batches, states in files:
            self.apply(batches, states)

    def _rows_of_states(
        self, batch: pa.RecordBatch, states: Collection[str] | None
    ) -> Iterator[StateRows]:
        """Yield the rows of each of `states` (None: of each state) in a batch."""
        in_file = {column.name for column in state_columns(batch.schema)}
        applied = in_file if states is None else in_file.intersection(states)
        unknown = applied - self._states.keys()
        assert not unknown, f"states {unknown} are not registered"
        serializers = {name: self._states[name].serializer for name in applied}
        return from_batch(self._key_columns, serializers, batch)

    def close(self) -> None:
        """Release files and other resources except memory. Snapshots that are not written yet stay
        usable."""

    def incremental_snapshot(self, held: Sequence[StateHandle]) -> KeyedStateSnapshot | None:
        """Take a snapshot of the current entries that writes only data that is not in the files
        `held`. None if the backend has no such snapshots."""
        return None

    @abstractmethod
    def snapshot(self, key_groups: KeyGroupRange | None = None) -> FullSnapshot:
        """Take a snapshot of the current entries of `key_groups` (None: of all key groups)."""


def _with_growth(entries: StateEntries, growth: Growth) -> StateEntries:
    """Return the entries of one state in a batch, with the growth of the key groups: the number of
    entries that each key group gains.

    `growth`: the growth by all rows of the file, see entry_growth. A key group may be in several
    batches of the file. The first of these batches gets the whole growth of the key group, and the
    function removes this growth from `growth`.
    """
    of_state = growth.get(entries.name)
    if of_state is None:
        return entries
    in_batch = of_state.keys() & set(entries.key_groups)
    return replace(entries, growth={key_group: of_state.pop(key_group) for key_group in in_batch})


def _in_order_of_keys(timers: Iterable[Due]) -> list[Due]:
    timers_by_key = {timer.key: timer for timer in timers}
    return [timers_by_key[key] for key in in_order(timers_by_key)]
