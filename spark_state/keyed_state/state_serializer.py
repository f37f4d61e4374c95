"""Converts the states of one table for files and back, whatever their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

S = TypeVar("S")


class StateSerializer(Protocol[S]):
    """`struct_type`: the Arrow struct of the state's column, its own fields nullable or not."""

    @property
    def struct_type(self) -> pa.StructType: ...

    def deletes(self, states: Sequence[S | None]) -> list[bool]:
        """Which of the states are deletions."""

    def to_arrow(self, states: Sequence[S | None]) -> pa.StructArray:
        """States (None = null) as one array of `struct_type`, its fields nullable. Raises
        StateValueError naming the field."""

    def from_arrow(self, array: Any) -> list[S | None]:
        """The inverse of `to_arrow`."""
