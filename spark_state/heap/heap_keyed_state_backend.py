"""Keyed state of one subtask on the Python heap.

State name -> HeapStateTable, over the subtask's key groups. A state is registered once by the
processor ("try register"): if a restored state has its name, the schemas must agree; a restored
state that nobody registers is kept and written on.

An epoch is: any number of `set_current_key` and calls on states, then `changes` and `seal`, or
`rollback`. The backend is used by one thread at a time; only snapshots leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.schema_text import schema_texts
from spark_state.errors import StateMigrationError
from spark_state.heap.heap_snapshot import HeapSnapshot
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.collection_serializers import ListSerializer, MapSerializer
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.keyed_state.state_rows import from_batch, state_columns, to_table
from spark_state.keyed_state.state_serializer import StateSerializer
from spark_state.keyed_state.value_state import ValueState
from spark_state.serializers import Forms, StructSerializer
from spark_state.state_descriptor import StateDescriptor, StateKind

_SERIALIZERS: dict[StateKind, Callable[[pa.StructType, str, Forms], StateSerializer[Any]]] = {
    "value": StructSerializer,
    "list": ListSerializer,
    "map": MapSerializer,
}


class HeapKeyedStateBackend:
    """The states of one subtask.

    `key_groups`: its range; `key_columns`: of the grouping key; `forms`: of the
    values of states.
    """

    def __init__(self, key_groups: KeyGroupRange, key_columns: KeyColumns, forms: Forms) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._forms = forms
        self._tables: dict[str, HeapStateTable[Any]] = {}
        self._descriptors: dict[str, StateDescriptor] = {}

    def __len__(self) -> int:
        """Number of entries over all states."""
        return sum(map(len, self._tables.values()))

    def restore_descriptor(self, descriptor: StateDescriptor) -> None:
        """Announce a state of the store, before its files are applied."""
        self._table(descriptor)

    def state(self, descriptor: StateDescriptor) -> ValueState | ListState | MapState:
        """Register a state.

        Raises StateMigrationError when a state of that name has another kind or schema.
        """
        table = self._table(descriptor)
        match table.serializer:
            case ListSerializer() as lists:
                return ListState(table, lists)
            case MapSerializer() as maps:
                return MapState(table, maps)
            case StructSerializer() as values:
                return ValueState(table, values)
        raise AssertionError(f"no state has {table.serializer}")

    def _table(self, descriptor: StateDescriptor) -> HeapStateTable[Any]:
        held = self._descriptors.get(descriptor.name)
        if held is None:
            serializer = _SERIALIZERS[descriptor.kind](
                descriptor.value_type, f"state {descriptor.name!r}", self._forms
            )
            self._descriptors[descriptor.name] = descriptor
            self._tables[descriptor.name] = HeapStateTable(
                descriptor.name, serializer, self.key_groups
            )
        elif (held.kind, held.value_type) != (descriptor.kind, descriptor.value_type):
            stored, declared = schema_texts(held.schema_json, descriptor.schema_json)
            raise StateMigrationError(
                f"state {descriptor.name!r} is in the store as a {held.kind} state of ({stored}), "
                f"the processor declares a {descriptor.kind} state of ({declared}); declare the "
                "stored schema, give the state another name, or start with an empty store"
            )
        return self._tables[descriptor.name]

    @property
    def descriptors(self) -> tuple[StateDescriptor, ...]:
        """All states, registered or only restored."""
        return tuple(self._descriptors.values())

    def set_current_key(self, key: tuple[Any, ...], key_group: int) -> None:
        """The key that states read and write from now on."""
        for table in self._tables.values():
            table.set_current_key(key, key_group)

    def changes(self) -> pa.Table:
        """What the running epoch changed, as rows of a changelog file."""
        return to_table(self._key_columns, [table.changes() for table in self._tables.values()])

    def seal(self) -> None:
        """End the running epoch; it stays undoable until the next one is sealed."""
        for table in self._tables.values():
            table.seal()

    def rollback(self) -> None:
        """Undo what the running epoch changed."""
        for table in self._tables.values():
            table.rollback()

    def undo_sealed(self) -> None:
        """Undo the last sealed epoch."""
        for table in self._tables.values():
            table.undo_sealed()

    def apply(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Apply the rows of a file, in its order, to the state."""
        serializers = {name: table.serializer for name, table in self._tables.items()}
        for batch in batches:
            unknown = {c.name for c in state_columns(batch.schema)} - serializers.keys()
            assert not unknown, f"states {unknown} were not announced"
            for entries in from_batch(self._key_columns, serializers, batch):
                self._tables[entries.name].apply(entries)

    def entries_by_key_group(self) -> list[int]:
        """The number of entries of each of its key groups, in their order."""
        entries = [0] * len(self.key_groups)
        for table in self._tables.values():
            for key_group, size in table.sizes().items():
                entries[key_group - self.key_groups.start] += size
        return entries

    def snapshot(self, key_groups: KeyGroupRange | None = None) -> HeapSnapshot:
        """The entries of this moment, of these key groups (None: of all), to be written by another
        thread."""
        wanted = self.key_groups if key_groups is None else key_groups
        return HeapSnapshot(self._key_columns, list(self._tables.values()), wanted)

    def check_invariants(self) -> None:
        for table in self._tables.values():
            table.check_invariants()
