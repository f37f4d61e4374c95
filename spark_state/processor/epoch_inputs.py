"""The inputs of an epoch: what the one table that a subtask is sent consists of.

Spark gives an operator one DataFrame. An operator with several inputs gets their union, and finds
them in it again by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_state.processor.key_grouping import InputLayout

KEYED_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class EpochInput:
    """One input; `layout`: where its table holds what, if it has rows."""

    table: pa.Table
    layout: InputLayout


class EpochInputs(Protocol):
    """How a subtask's table holds the inputs. Pickles.

    `key_group_index`: the column of the table that says whose a row is.
    """

    @property
    def key_group_index(self) -> int: ...

    def by_name(self, table: pa.Table) -> Mapping[str, EpochInput]:
        """The inputs, each under its name; KEYED_ROWS is what the operator was called on. A table
        without rows may have no columns."""


@dataclass(frozen=True, slots=True)
class OneInput:
    """The table is the keyed rows, and nothing else."""

    layout: InputLayout

    @property
    def key_group_index(self) -> int:
        """See EpochInputs."""
        return self.layout.key_group_index

    def by_name(self, table: pa.Table) -> Mapping[str, EpochInput]:
        """See EpochInputs."""
        return {KEYED_ROWS: EpochInput(table, self.layout)}
