"""The inputs of an epoch: what the one table that a subtask is sent consists of.

Spark gives an operator one DataFrame. An operator with several inputs gets their union, and finds
them in it again by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.key_grouping import InputLayout, KeyedInput, group_by_key

KEYED_ROWS = "rows"
INITIAL_ROWS = "initial rows"


class RowsByKey(Protocol):
    """An input whose rows a step gets by key. `layout`: of its rows."""

    @property
    def layout(self) -> InputLayout: ...

    @property
    def num_rows(self) -> int:
        """How many rows steps get; known when they have got them."""

    @property
    def late_rows(self) -> int:
        """How many rows steps do not get, because they are late; known at the same time."""

    def by_key(self, key_columns: KeyColumns) -> Iterator[KeyedInput]:
        """The rows in the order of their keys, in parts: each key is in one part, with all of its
        rows, in the order in which they came."""


@dataclass(frozen=True, slots=True)
class EpochInput:
    """A RowsByKey in memory; `layout`: where its table holds what, if it has rows; `late_rows`: how
    many were left out."""

    table: pa.Table
    layout: InputLayout
    late_rows: int = 0

    @property
    def num_rows(self) -> int:
        """See RowsByKey."""
        return self.table.num_rows

    def by_key(self, key_columns: KeyColumns) -> Iterator[KeyedInput]:
        """See RowsByKey."""
        if self.table.num_rows:
            yield group_by_key(self.table, self.layout, key_columns)


class EpochInputs(Protocol):
    """How a subtask's table holds the inputs. Pickles.

    `key_group_index`: the column of the table that says whose a row is.
    """

    @property
    def key_group_index(self) -> int: ...

    def batch_ms(self, table: pa.Table) -> int | None:
        """The time of the batch, as its rows tell it; None if none does."""

    def by_name(self, table: pa.Table) -> Mapping[str, EpochInput]:
        """The inputs, each under its name; KEYED_ROWS is what the operator was called on. A table
        without rows may have no columns. There are INITIAL_ROWS, and a `broadcast_input` for each
        broadcast stream, if the operator has them."""


@dataclass(frozen=True, slots=True)
class OneInput:
    """The table is the keyed rows, and nothing else."""

    layout: InputLayout

    @property
    def key_group_index(self) -> int:
        """See EpochInputs."""
        return self.layout.key_group_index

    def batch_ms(self, table: pa.Table) -> int | None:
        """No row tells it."""
        return None

    def by_name(self, table: pa.Table) -> Mapping[str, EpochInput]:
        """See EpochInputs."""
        return {KEYED_ROWS: EpochInput(table, self.layout)}


@dataclass(frozen=True, slots=True)
class SideInput:
    """An input beside the keyed rows, called `name`: its rows are structs in the column `column`,
    which is null in all other rows. `layout`: of the structs' fields, and the key group after
    them."""

    name: str
    column: str
    layout: InputLayout

    def of(self, table: pa.Table, key_group_index: int) -> EpochInput:
        """The rows of this input in a subtask's table."""
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
class UnitedInputs:
    """Keyed rows, control rows, and the rows of other inputs. If it `tells_time`, the last column
    has the batch's time, which is the same in all rows of a batch.

    A control row brings the batch's time to a subtask that may have no other row. Its key group is
    negative, see `control_key_group`, and its other columns are null.
    """

    layout: InputLayout
    sides: tuple[SideInput, ...] = ()
    tells_time: bool = True

    @property
    def key_group_index(self) -> int:
        """See EpochInputs."""
        return self.layout.key_group_index

    def batch_ms(self, table: pa.Table) -> int | None:
        """See EpochInputs."""
        if not (self.tells_time and table.num_rows):
            return None
        time: int = table.column(table.num_columns - 1)[0].as_py()
        return time

    def by_name(self, table: pa.Table) -> Mapping[str, EpochInput]:
        """See EpochInputs."""
        others = {side.name: side.of(table, self.key_group_index) for side in self.sides}
        if table.num_rows:
            first = pa.scalar(0, pa.int32())
            keyed = pc.greater_equal(table.column(self.key_group_index), first)
            for side in self.sides:
                keyed = pc.and_(keyed, table.column(side.column).is_null())
            table = table if pc.all(keyed).as_py() else table.filter(keyed)
        return {KEYED_ROWS: EpochInput(table, self.layout), **others}


def broadcast_input(name: str) -> str:
    """What the input of a broadcast stream is called; `name`: the user's name of it."""
    return f"broadcast {name}"


def control_key_group(subtask: int) -> int:
    """What control rows for a subtask have for a key group."""
    return -1 - subtask


def subtask_of_control(key_group: int) -> int | None:
    """Whose control row one with this key group is; None if it is no control row."""
    return -1 - key_group if key_group < 0 else None
