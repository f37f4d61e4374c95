"""Conversion of state to rows of a changelog or snapshot file, and back.

One row is one value of a value state, or one element of a list state, a map state or timers:

    key columns…   under their own names and types, first
    _key_group     int32
    _state         string, the state's name
    _op            string, "put" or "delete"
    state columns  one struct column per state, null unless `_state` names the state

For a value state the struct is the value, null if the row deletes the value. For other states the
struct is an element, see `element_serializers`; a row with op "delete" and a null struct deletes
all elements of the key.

A state's column carries the state's name in the field metadata (`cowstate.state`). The column name
is the state's name, with underscores appended if a key column or a second state has the same name.
Rows are sorted by key group and key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.files.entry_growth import with_growth
from checkpoint_store.files.evolved_columns import evolved
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import (
    DELETE,
    KEY_GROUP_COLUMN,
    OP,
    PUT,
    STATE,
    STATE_METADATA,
)
from spark_state.errors import StateMigrationError
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns, StoredKeys, leaf_columns

S = TypeVar("S")

RESERVED_COLUMNS = (KEY_GROUP_COLUMN, STATE, OP)


class StateSerializer(Protocol[S]):
    """Converter between the Python objects in a state's table and the Arrow structs in files. Each
    kind of state has its own serializer. `struct_type`: the declared Arrow struct of the state; in
    files all fields of the struct are nullable."""

    @property
    def struct_type(self) -> pa.StructType: ...

    def deletes(self, states: Sequence[S | None]) -> list[bool]:
        """Return for each state True if the state is a deletion."""

    def to_arrow(self, states: Sequence[S | None]) -> pa.StructArray:
        """Convert states to an array of `struct_type` with nullable fields; None becomes null.
        Raises StateValueError naming the field."""

    def from_arrow(self, array: Any) -> list[S | None]:
        """Return the states of an array, the inverse of `to_arrow`."""


@dataclass(frozen=True, slots=True)
class StateEntries:
    """Entries of one state: `keys[i]` with key group `key_groups[i]` has `states[i]`.

    `name`: the state's name. `states`: for a value state, values (None: deleted); for other states,
    ElementRows. `growth`: for each key group, the number of entries that the state gains (negative:
    loses) by these entries; None if unknown.
    """

    name: str
    serializer: StateSerializer[Any]
    keys: Sequence[Key]
    key_groups: list[int]
    states: list[Any]
    growth: Mapping[int, int] | None = None


def growth_of(changes: Iterable[tuple[int, object, object]]) -> dict[int, int]:
    """Return the number of entries that each key group gains (negative: loses) by `changes`. A
    change is the key group, the old value and the new value; None if there is no value."""
    growth: Counter[int] = Counter()
    for key_group, before, now in changes:
        if (before is None) is not (now is None):
            growth[key_group] += 1 if before is None else -1
    return {key_group: entries for key_group, entries in growth.items() if entries}


def rows_by_key_group(
    rows: pa.RecordBatch | pa.Table, key_groups: KeyGroupRange
) -> npt.NDArray[np.int64]:
    """Return the number of rows of each of `key_groups`, in order. `rows` must contain no other key
    groups."""
    indices = rows.column(KEY_GROUP_COLUMN).to_numpy() - key_groups.start
    return np.bincount(indices, minlength=len(key_groups))


def no_rows(key_groups: KeyGroupRange) -> npt.NDArray[np.int64]:
    """Return the result of `rows_by_key_group` for no rows."""
    return np.zeros(len(key_groups), np.int64)


def number_of_puts(rows: pa.Table) -> int:
    """Return the number of rows that put an entry. All other rows delete an entry."""
    is_put: Any = pc.equal(rows[OP], pa.scalar(PUT))
    return cast(int, pc.sum(is_put).as_py() or 0)


def to_table(key_columns: KeyColumns, entries: Sequence[StateEntries]) -> pa.Table:
    """Return the entries as the sorted rows of a file, with a column per state. The schema's
    metadata note the growth, see entry_growth."""
    fields = _schema(key_columns, entries)
    tables = [
        _table_of(fields, key_columns, entries, of_state) for of_state in entries if of_state.keys
    ]
    if not tables:
        return fields.empty_table()
    rows = sorted_by_key(pa.concat_tables(tables), key_columns.names)
    return with_growth(
        rows, {each.name: each.growth for each in entries if each.growth is not None}
    )


def sorted_by_key(table: pa.Table, key_names: Sequence[str]) -> pa.Table:
    """Return rows in the order of files: by key group and key."""
    names = (KEY_GROUP_COLUMN, *key_names)
    if not any(pa.types.is_nested(table.schema.field(name).type) for name in key_names):
        return table.sort_by([(name, "ascending") for name in names])
    leaves = {str(n): leaf for n, leaf in enumerate(leaf_columns(table[name] for name in names))}
    order = pc.sort_indices(pa.table(leaves), sort_keys=[(name, "ascending") for name in leaves])
    return table.take(order)


def _schema(key_columns: KeyColumns, entries: Sequence[StateEntries]) -> pa.Schema:
    fields = [
        pa.field(name, arrow_type)
        for name, arrow_type in zip(key_columns.names, key_columns.arrow_types, strict=True)
    ]
    fields += [
        pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False),
        pa.field(STATE, pa.string(), nullable=False),
        pa.field(OP, pa.string(), nullable=False),
    ]
    names = names_of_columns([field.name for field in fields], [s.name for s in entries])
    fields += [
        pa.field(name, _nullable(of_state.serializer), metadata={STATE_METADATA: of_state.name})
        for name, of_state in zip(names, entries, strict=True)
    ]
    return pa.schema(fields)


def names_of_columns(taken: Sequence[str], states: Sequence[str]) -> list[str]:
    """Return the names of the state columns in a file where the names `taken` are already in
    use."""
    used, names = {*taken}, []
    for name in states:
        while name in used:
            name += "_"
        used.add(name)
        names.append(name)
    return names


def _nullable(serializer: StateSerializer[Any]) -> pa.StructType:
    return pa.struct([field.with_nullable(True) for field in serializer.struct_type])


def _table_of(
    schema: pa.Schema,
    key_columns: KeyColumns,
    entries: Sequence[StateEntries],
    of_state: StateEntries,
) -> pa.Table:
    length = len(of_state.keys)
    arrays: list[pa.Array[Any]] = key_columns.to_arrow(of_state.keys)
    arrays.append(pa.array(of_state.key_groups, pa.int32()))
    arrays.append(pa.repeat(pa.scalar(of_state.name), length))
    deletes = of_state.serializer.deletes(of_state.states)
    arrays.append(pa.array([DELETE if is_deleted else PUT for is_deleted in deletes]))
    arrays += [
        of_state.serializer.to_arrow(of_state.states)
        if other is of_state
        else pa.nulls(length, _nullable(other.serializer))
        for other in entries
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A state in a file: the state's name, and the index of the state's column."""

    name: str
    index: int


def state_columns(schema: pa.Schema) -> list[StateColumn]:
    """Return the states in a file with this schema."""
    return [
        StateColumn(field.metadata[STATE_METADATA].decode(), index)
        for index, field in enumerate(schema)
        if field.metadata and STATE_METADATA in field.metadata
    ]


@dataclass(frozen=True, slots=True)
class StateRows:
    """The rows of one state in a batch of a file. `name`: the state's name; `key_groups`: the
    column `_key_group`; `states`: the structs, converted to the declared types; `operations`: the
    column `_op`."""

    name: str
    serializer: StateSerializer[Any]
    keys: StoredKeys
    key_groups: Any
    states: Any
    operations: Any

    def entries(self) -> StateEntries:
        """Convert the rows to entries."""
        states = self.serializer.from_arrow(self.states)
        _mark_deleted_elements(states, self.operations)
        groups = cast(list[int], self.key_groups.to_pylist())
        return StateEntries(self.name, self.serializer, self.keys, groups, states)


def from_batch(
    key_columns: KeyColumns, serializers: Mapping[str, StateSerializer[Any]], batch: pa.RecordBatch
) -> Iterator[StateRows]:
    """Yield the rows of each state in a batch. States without a serializer are skipped."""
    names = batch.column(STATE)
    for column in state_columns(batch.schema):
        if column.name not in serializers:
            continue
        rows = pc.equal(names, pa.scalar(column.name))
        part = batch if pc.all(rows).as_py() else batch.filter(rows)
        if not part.num_rows:
            continue
        serializer = serializers[column.name]
        keys = [part.column(i) for i in range(len(key_columns.names))]
        yield StateRows(
            column.name,
            serializer,
            StoredKeys(key_columns, keys, part.num_rows),
            part.column(KEY_GROUP_COLUMN),
            _as_declared(part.column(column.index), column.name, serializer),
            part.column(OP),
        )


def _as_declared(column: Any, name: str, serializer: StateSerializer[Any]) -> Any:
    """Convert the structs of a file to the declared types. Raises StateMigrationError for a number
    that the declared type cannot hold exactly."""
    declared = _nullable(serializer)
    try:
        return evolved(column, declared)
    except pa.ArrowInvalid as error:
        raise StateMigrationError(
            f"state {name!r} is in the store as {column.type}, the processor declares "
            f"{declared}, and a value in its files is too large: {error}. Nothing has "
            "changed in the store. Declare the stored schema, or a type that holds all values "
            "(a double holds whole numbers up to 2^53, a float up to 2^24), or give the state "
            "another name"
        ) from error


def _mark_deleted_elements(states: list[Any], operations: Any) -> None:
    """Set the value of deleted elements to None. `from_arrow` gives a timer a value even if the row
    deletes the timer."""
    for index in pc.indices_nonzero(pc.equal(operations, pa.scalar(DELETE))).to_pylist():
        if states[index] is not None:
            states[index] = (states[index][0], None)
