"""The protocol for converting the states of one table to files and back, for states of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

S = TypeVar("S")


class StateSerializer(Protocol[S]):
    """A converter of states. `struct_type`: the Arrow struct of the state's column, with fields
    nullable or not."""

    @property
    def struct_type(self) -> pa.StructType: ...

    def deletes(self, states: Sequence[S | None]) -> list[bool]:
        """Return for each state True if the state is a deletion."""

    def to_arrow(self, states: Sequence[S | None]) -> pa.StructArray:
        """Return states (None = null) as one array of `struct_type`, with nullable fields. Raises
        StateValueError naming the field."""

    def from_arrow(self, array: Any) -> list[S | None]:
        """Return the states of an array, the inverse of `to_arrow`."""
