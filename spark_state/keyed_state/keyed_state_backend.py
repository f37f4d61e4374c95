"""What all backends of keyed state share: which states there are, and what a backend has to do.

State name -> table, over the subtask's key groups. A state is registered once by the processor
("try register"): if a restored state has its name, the schemas must agree; a restored state that
nobody registers is kept and written on.

An epoch is: any number of `set_current_key` and calls on states, then `changes` and `seal`, or
`rollback`. A backend is used by one thread at a time; only snapshots leave it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.schema_text import schema_texts
from spark_state.errors import StateMigrationError
from spark_state.keyed_state.collection_serializers import ListSerializer, MapSerializer
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_table import KeyedStateTable
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.keyed_state.state_serializer import StateSerializer
from spark_state.keyed_state.value_state import ValueState
from spark_state.serializers import Forms, StructSerializer
from spark_state.state_descriptor import StateDescriptor, StateKind

_SERIALIZERS: dict[StateKind, Callable[[pa.StructType, str, Forms], StateSerializer[Any]]] = {
    "value": StructSerializer,
    "list": ListSerializer,
    "map": MapSerializer,
}


class SnapshotFiles(Protocol):
    """Where a snapshot writes itself."""

    def write_snapshot(self, rows: pa.Table, key_groups: KeyGroupRange) -> StateHandle:
        """A file of rows of these key groups, sorted by key group and key; durable on return."""


class KeyedStateSnapshot(Protocol):
    """The entries of all states in `key_groups` at one moment. Another thread may write them."""

    key_groups: KeyGroupRange

    def write(self, files: SnapshotFiles) -> tuple[StateHandle, ...]:
        """Write it, once, and release it; the files, which hold all of its entries."""

    def release(self) -> None:
        """Give up what is not written yet. Safe to call again."""


Table = TypeVar("Table", bound=KeyedStateTable[Any])


class KeyedStateBackend(ABC, Generic[Table]):
    """The states of one subtask.

    `key_groups`: the subtask's range; `key_columns`: those of the grouping key; `forms`: the Python
    forms of values in states.
    """

    def __init__(self, key_groups: KeyGroupRange, key_columns: KeyColumns, forms: Forms) -> None:
        self.key_groups = key_groups
        self._key_columns = key_columns
        self._forms = forms
        self._tables: dict[str, Table] = {}
        self._serializers: dict[str, StateSerializer[Any]] = {}
        self._descriptors: dict[str, StateDescriptor] = {}

    @property
    def descriptors(self) -> tuple[StateDescriptor, ...]:
        """All states, registered or only restored."""
        return tuple(self._descriptors.values())

    def restore_descriptor(self, descriptor: StateDescriptor) -> None:
        """Announce a state of the store, before its files are applied."""
        self._table(descriptor)

    def state(self, descriptor: StateDescriptor) -> ValueState | ListState | MapState:
        """Register a state.

        Raises StateMigrationError when a state of that name has another kind or schema.
        """
        table, serializer = self._table(descriptor)
        match serializer:
            case ListSerializer() as lists:
                return ListState(table, lists)
            case MapSerializer() as maps:
                return MapState(table, maps)
            case StructSerializer() as values:
                return ValueState(table, values)
        raise AssertionError(f"no state has {serializer}")

    def _table(self, descriptor: StateDescriptor) -> tuple[Table, StateSerializer[Any]]:
        held = self._descriptors.get(descriptor.name)
        if held is None:
            serializer = _SERIALIZERS[descriptor.kind](
                descriptor.value_type, f"state {descriptor.name!r}", self._forms
            )
            self._descriptors[descriptor.name] = descriptor
            self._tables[descriptor.name] = self._new_table(descriptor.name, serializer)
            self._serializers[descriptor.name] = serializer
        elif (held.kind, held.value_type) != (descriptor.kind, descriptor.value_type):
            stored, declared = schema_texts(held.schema_json, descriptor.schema_json)
            raise StateMigrationError(
                f"state {descriptor.name!r} is in the store as a {held.kind} state of ({stored}), "
                f"the processor declares a {descriptor.kind} state of ({declared}); declare the "
                "stored schema, give the state another name, or start with an empty store"
            )
        return self._tables[descriptor.name], self._serializers[descriptor.name]

    @abstractmethod
    def _new_table(self, name: str, serializer: StateSerializer[Any]) -> Table:
        """An empty table for a state."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of entries over all states."""

    @abstractmethod
    def entries_by_key_group(self) -> Sequence[int]:
        """The number of entries of each of its key groups, in their order."""

    @abstractmethod
    def set_current_key(self, key: tuple[Any, ...], key_group: int) -> None:
        """The key that states read and write from now on."""

    @abstractmethod
    def changes(self) -> pa.Table:
        """What the running epoch changed, as rows of a changelog file."""

    @abstractmethod
    def seal(self) -> None:
        """End the running epoch; it stays undoable until the next one is sealed."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo what the running epoch changed."""

    @abstractmethod
    def undo_sealed(self) -> None:
        """Undo the last sealed epoch."""

    @abstractmethod
    def apply(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Apply the rows of a file, in its order, to the state. The states are announced, and the
        running epoch has changed nothing."""

    @abstractmethod
    def snapshot(self, key_groups: KeyGroupRange | None = None) -> KeyedStateSnapshot:
        """The entries of this moment, of these key groups (None: of all)."""
