"""Inputs of an epoch: the parts of the one table that a subtask gets.

Spark gives an operator one DataFrame. An operator with several inputs gets the union of the inputs,
and separates the inputs by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.input.key_grouping import InputLayout, KeyedInput, group_by_key

KEYED_ROWS = "rows"
INITIAL_ROWS = "initial rows"


class RowsByKey(Protocol):
    """An input whose rows a step reads by key. `layout`: layout of the rows."""

    @property
    def layout(self) -> InputLayout: ...

    @property
    def num_rows(self) -> int:
        """The number of rows that steps get; known after the steps have read all rows."""

    @property
    def late_rows(self) -> int:
        """The number of late rows, which steps do not get; known after the steps have read all
        rows."""

    def by_key(self, key_columns: KeyColumns) -> Iterator[KeyedInput]:
        """Return the rows in the order of the keys, in parts. Each key is in one part, with all its
        rows in the order of arrival."""


@dataclass(frozen=True, slots=True)
class EpochInput:
    """A RowsByKey in memory. `layout`: column positions in `table`, if the table has rows.
    `late_rows`: number of rows left out."""

    table: pa.Table
    layout: InputLayout
    late_rows: int = 0

    @property
    def num_rows(self) -> int:
        """The number of rows in the table."""
        return self.table.num_rows

    def by_key(self, key_columns: KeyColumns) -> Iterator[KeyedInput]:
        if self.table.num_rows:
            yield group_by_key(self.table, self.layout, key_columns)


@dataclass(frozen=True, slots=True)
class SideInput:
    """An input beside the keyed rows. `column`: column with the input's rows as structs, null in
    the rows of other inputs. `layout`: layout of the structs' fields, with the key group after the
    fields."""

    name: str
    column: str
    layout: InputLayout

    def of(self, table: pa.Table, key_group_index: int) -> EpochInput:
        """Return the rows of this input in a subtask's table."""
        if not table.num_rows:
            return EpochInput(table, self.layout)
        structs = table.column(self.column)
        present = structs.is_valid()
        rows = pa.Table.from_struct_array(structs.filter(present))
        key_groups = table.column(key_group_index).filter(present)
        named = [f"column {index}" for index in range(rows.num_columns)]
        rows = rows.rename_columns(named).append_column("key group", key_groups)
        return EpochInput(rows, self.layout)


@dataclass(frozen=True, slots=True)
class EpochInputs:
    """Positions of the inputs in a subtask's table: keyed rows, control rows, and the rows of other
    inputs. Can be pickled. `tells_time`: True if the last column has the batch's time, which is the
    same in all rows of a batch.

    A control row brings the batch's time to a subtask that may have no other row, see control_rows.
    """

    layout: InputLayout
    sides: tuple[SideInput, ...] = ()
    tells_time: bool = False

    def batch_ms(self, table: pa.Table) -> int | None:
        """Return the batch's time from the rows; None if no row has the time."""
        if not (self.tells_time and table.num_rows):
            return None
        time: int = table.column(table.num_columns - 1)[0].as_py()
        return time

    def by_name(self, table: pa.Table) -> Mapping[str, EpochInput]:
        """Return the inputs by name. The input KEYED_ROWS always exists: rows of the DataFrame that
        the operator was called on. INITIAL_ROWS exists if the operator has an initial state. Each
        broadcast stream has an input, whose name `broadcast_input` returns. A `table` without rows
        may have no columns."""
        key_group_index = self.layout.key_group_index
        others = {side.name: side.of(table, key_group_index) for side in self.sides}
        if table.num_rows:
            first = pa.scalar(0, pa.int32())
            keyed = pc.greater_equal(table.column(key_group_index), first)
            for side in self.sides:
                keyed = pc.and_(keyed, table.column(side.column).is_null())
            table = table if pc.all(keyed).as_py() else table.filter(keyed)
        return {KEYED_ROWS: EpochInput(table, self.layout), **others}


def broadcast_input(name: str) -> str:
    """Return the name of the input for a broadcast stream. `name`: the user's name of the
    stream."""
    return f"broadcast {name}"
