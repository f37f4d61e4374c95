"""What all backends of keyed state share: which states there are, and what a backend has to do.

State name -> table, over the subtask's key groups. A state is registered once by the processor
("try register"): if a restored state has its name, the schemas must agree; a restored state that
nobody registers is kept and written on.

An epoch is: `begin`, any number of `set_current_key` and calls on states, then `changes` and
`seal`, or `rollback`. A backend is used by one thread at a time; only snapshots leave it.
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
from spark_state.keyed_state.full_snapshot import FullSnapshot
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_element_table import DueTime
from spark_state.keyed_state.keyed_state_snapshot import KeyedStateSnapshot
from spark_state.keyed_state.object_sizes import FEW
from spark_state.keyed_state.schema_evolution import check_evolution
from spark_state.keyed_state.state_kinds import OpenTable, State, kept_state, state_of_key
from spark_state.keyed_state.state_rows import StateEntries, from_batch, state_columns, to_table
from spark_state.keyed_state.state_serializer import StateSerializer
from spark_state.keyed_state.timers import Timers
from spark_state.state_descriptor import StateDescriptor


class Due(NamedTuple):
    """An element of a key that is due: a timer to fire, or a value that has expired."""

    time_ms: int
    key: Key
    key_group: int
    element: Any


class BackendTable(Protocol):
    """What a table of any kind of state does for its backend."""

    def __len__(self) -> int:
        """Number of entries."""

    def sizes(self) -> dict[int, int]:
        """The number of entries by key group, after the last sealed epoch."""

    def number_of_changes(self) -> int:
        """How many values or elements the running epoch has changed, or more."""

    def changes(self) -> StateEntries:
        """What the running epoch changed."""

    def seal(self) -> None:
        """End the running epoch; it can be undone until the next one is sealed."""

    def rollback(self) -> None:
        """Undo what the running epoch changed."""

    def undo_sealed(self) -> None:
        """Undo what the last sealed epoch changed. The running epoch must be unchanged."""

    def apply(self, entries: StateEntries) -> None:
        """Apply rows of a file to the base state; nothing of it can be undone. The running epoch
        must be unchanged."""


Table = TypeVar("Table", bound=BackendTable)


@dataclass(frozen=True, slots=True)
class _Dropped(Generic[Table]):
    """A state that an epoch dropped, which may be undone."""

    descriptor: StateDescriptor
    serializer: StateSerializer[Any]
    table: Table


class KeyedStateBackend(ABC, Generic[Table]):
    """The states of one subtask.

    `key_groups`: the subtask's range; `key_columns`: those of the grouping key; `forms`: the Python
    forms of values in states.
    """

    def __init__(self, key_groups: KeyGroupRange, key_columns: KeyColumns, forms: Forms) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._forms = forms
        self._clock = EpochClock()
        self._current = CurrentKey(key_groups.start)
        self._tables: dict[str, Table] = {}
        self._serializers: dict[str, StateSerializer[Any]] = {}
        self._descriptors: dict[str, StateDescriptor] = {}
        self._dropped: dict[str, _Dropped[Table]] = {}
        self._sealed_dropped: dict[str, _Dropped[Table]] = {}

    @property
    def descriptors(self) -> tuple[StateDescriptor, ...]:
        """All states, registered or only restored."""
        return tuple(self._descriptors.values())

    def restore_descriptor(self, descriptor: StateDescriptor) -> None:
        """Announce a state of the store, before its files are applied."""
        self.state(descriptor)

    def state(self, descriptor: StateDescriptor) -> State:
        """Register a state, and return that of the current key. Raises what open_table does."""
        return state_of_key(self.open_table(descriptor))

    def open_table(self, descriptor: StateDescriptor) -> OpenTable:
        """Register a state, and return its table. What was put before a change of `ttl_ms` expires
        when it would have.

        A state of that name that the backend has already has the same schema: who restores a state
        whose schema has changed announces the new one. Raises StateMigrationError when values of
        the one cannot be those of the other, see schema_evolution.
        """
        name = descriptor.name
        kept = kept_state(descriptor, self._forms, self._clock)
        held = self._descriptors.get(name)
        if held is not None:
            check_evolution(held, descriptor)
            assert held.value_type == descriptor.value_type, "values are held in the other form"
        elif kept.has_elements:
            self._tables[name] = self._new_element_table(descriptor, kept.serializer, kept.due_time)
        else:
            self._tables[name] = self._new_value_table(descriptor, kept.serializer)
        self._serializers[name] = kept.serializer
        self._descriptors[name] = descriptor
        return OpenTable(descriptor.kind, kept.seen(self._tables[name]), kept.values)

    def drop(self, name: str) -> bool:
        """Delete a state with all it has, and say whether it was there. What the running epoch has
        changed of it is lost, too, so do it before anything else."""
        if name not in self._descriptors:
            return False
        descriptor, serializer = self._descriptors.pop(name), self._serializers.pop(name)
        self._dropped[name] = _Dropped(descriptor, serializer, self._tables.pop(name))
        return True

    def begin(self, now_ms: int) -> None:
        """Begin an epoch at a time, in milliseconds since 1970. What it says has expired has."""
        self._clock.now_ms = now_ms

    def timers(self, name: str) -> Timers:
        """The timers that a state holds, of the current key."""
        table: Any = self._tables[name]
        return Timers(table)

    def next_timer_ms(self) -> int | None:
        """When the next timer is due; None if there is none."""
        of_timers = [name for name, held in self._descriptors.items() if held.kind == "timers"]
        times = [self.next_due_ms(name) for name in of_timers]
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def number_of_timers(self) -> int:
        """How many timers are registered."""
        tables: list[Any] = [
            self._tables[name] for name, held in self._descriptors.items() if held.kind == "timers"
        ]
        return sum(map(len, tables))

    def memory_bytes(self) -> int | None:
        """About how many bytes of memory the entries take, at a cost that does not grow with them;
        None if the backend does not know."""
        return None

    @abstractmethod
    def bytes_on_heap(self, looked_at: int = FEW) -> int:
        """About how many bytes Python objects take that are kept from key to key: entries, what
        the running epoch has read and changed, and what undoes the last ones; by about so many of
        each state. By FEW it costs next to nothing; by more, it also walks what epochs hold."""

    def forget_what_was_read(self) -> None:
        """Let go of what the running epoch has read and not changed."""

    def has_failed(self) -> bool:
        """Whether it takes no more changes, or has lost some. It must be restored then."""
        return False

    def due_timers(self, name: str, until_ms: int) -> list[Due]:
        """The timers of a state that are due: the earliest first, of one time in the order of
        their keys."""
        return [
            timer
            for _, timers in groupby(self._due(name, until_ms), attrgetter("time_ms"))
            for timer in _in_order_of_keys(timers)
        ]

    def remove_expired(self, most: int) -> int:
        """Remove values that have expired, `most` of them; returns how many."""
        removed = 0
        for name, descriptor in self._descriptors.items():
            if descriptor.ttl_ms is None:
                continue
            table: Any = self._tables[name]
            for expired in [*islice(self._due(name, self._clock.now_ms), most - removed)]:
                self.set_current_key(expired.key, expired.key_group)
                table.remove(expired.element)
                removed += 1
        return removed

    @abstractmethod
    def _new_value_table(
        self, descriptor: StateDescriptor, serializer: StateSerializer[Any]
    ) -> Table:
        """An empty KeyedStateTable."""

    @abstractmethod
    def _new_element_table(
        self,
        descriptor: StateDescriptor,
        serializer: StateSerializer[Any],
        due_time: DueTime | None,
    ) -> Table:
        """An empty KeyedElementTable; `due_time`: see KeptState."""

    def _due(self, name: str, until_ms: int) -> Iterator[Due]:
        """The elements of a state that are due at `until_ms`, the earliest first. The state does
        not change meanwhile."""
        table: Any = self._tables[name]
        for time_ms, (key_group, key, element) in table.due(until_ms):
            yield Due(time_ms, key, key_group, element)

    def next_due_ms(self, name: str) -> int | None:
        """When the next element of a state is due; None if none is."""
        table: Any = self._tables[name]
        next_ms: int | None = table.next_due_ms()
        return next_ms

    def number_of_changes(self) -> int:
        """How many values and elements the running epoch has changed, or more."""
        return sum(table.number_of_changes() for table in self._tables.values())

    def __len__(self) -> int:
        """Number of entries over all states."""
        return sum(map(len, self._tables.values()))

    def entries_by_key_group(self) -> Sequence[int]:
        """The number of entries of each of its key groups, in their order."""
        entries = [0] * len(self.key_groups)
        for table in self._tables.values():
            for key_group, size in table.sizes().items():
                entries[key_group - self.key_groups.start] += size
        return entries

    def _delete(self, table: Table) -> None:
        """Give up a table of a dropped state that nobody takes back any more."""

    def read_ahead(self, keys: Sequence[Key], key_groups: Sequence[int]) -> None:
        """Keys that are about to be handled, for a backend that reads many of them together."""

    @property
    def current_key(self) -> Key:
        """The key that states read and write."""
        return self._current.key

    def set_current_key(self, key: Key, key_group: int) -> None:
        """The key that states read and write from now on."""
        current = self._current
        current.key = key
        current.key_group = key_group

    def changes(self) -> pa.Table:
        """What the running epoch changed, as rows of a changelog file. Raises StateHostError if
        something could not be read."""
        return to_table(self._key_columns, [table.changes() for table in self._tables.values()])

    def seal(self) -> None:
        """End the running epoch; it stays undoable until the next one is sealed."""
        for table in self._tables.values():
            table.seal()
        for state in self._sealed_dropped.values():
            self._delete(state.table)
        self._sealed_dropped, self._dropped = self._dropped, {}

    def rollback(self) -> None:
        """Undo what the running epoch changed."""
        for table in self._tables.values():
            table.rollback()
        dropped, self._dropped = self._dropped, {}
        self._take_back(dropped)

    def undo_sealed(self) -> None:
        """Undo the last sealed epoch."""
        for table in self._tables.values():
            table.undo_sealed()
        dropped, self._sealed_dropped = self._sealed_dropped, {}
        self._take_back(dropped)

    def _take_back(self, dropped: dict[str, _Dropped[Table]]) -> None:
        for name, state in dropped.items():
            self._descriptors[name] = state.descriptor
            self._serializers[name] = state.serializer
            self._tables[name] = state.table

    def apply(
        self, batches: Iterable[pa.RecordBatch], states: Collection[str] | None = None
    ) -> None:
        """Apply the rows of a file that are of `states` (None: of all), in its order, to the state.
        The states are announced, and the running epoch has changed nothing. `batches` are all that
        the file has of some key groups."""
        growth: Growth | None = None
        for batch in batches:
            if growth is None:
                growth = noted_growth(batch.schema)
            in_file = {column.name for column in state_columns(batch.schema)}
            applied = in_file if states is None else in_file.intersection(states)
            unknown = applied - self._serializers.keys()
            assert not unknown, f"states {unknown} were not announced"
            serializers = {name: self._serializers[name] for name in applied}
            for entries in from_batch(self._key_columns, serializers, batch):
                self._tables[entries.name].apply(_with_growth(entries, growth))

    def close(self) -> None:
        """Give up all that is not memory. Snapshots that are not written yet stay."""

    def incremental_snapshot(self, held: Sequence[StateHandle]) -> KeyedStateSnapshot | None:
        """The entries of this moment, written without what the files in `held` have already; None
        if the backend has no such snapshots."""
        return None

    @abstractmethod
    def snapshot(self, key_groups: KeyGroupRange | None = None) -> FullSnapshot:
        """The entries of this moment, of these key groups (None: of all)."""


def _with_growth(entries: StateEntries, growth: Growth) -> StateEntries:
    """Entries of a batch with the growth that their file notes of them, as far as no earlier batch
    had it: a key group may be in several."""
    of_state = growth.get(entries.name)
    if of_state is None:
        return entries
    in_batch = of_state.keys() & set(entries.key_groups)
    return replace(entries, growth={key_group: of_state.pop(key_group) for key_group in in_batch})


def _in_order_of_keys(timers: Iterable[Due]) -> list[Due]:
    timers_by_key = {timer.key: timer for timer in timers}
    return [timers_by_key[key] for key in in_order(timers_by_key)]
