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

    def copy(self, state: S) -> S:
        """A copy that the operations of its kind of state may change in place."""

    def to_arrow(self, states: Sequence[S | None]) -> pa.StructArray:
        """States (None = null) as one array of `struct_type`, its fields nullable."""

    def from_arrow(self, array: Any) -> list[S | None]:
        """The inverse of `to_arrow`."""
