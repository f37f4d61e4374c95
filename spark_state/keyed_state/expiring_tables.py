"""Time to live: values that become invisible at their expiry time.

A table keeps each value with an expiry time. Each put sets the expiry time anew. From the expiry
time on, the value is invisible to the processor, although the table still has the value. A backend
removes a bounded number of expired values per epoch, see KeyedStateBackend.remove_expired.

Source: the semantics of `ttlDurationMs` in PySpark's StatefulProcessorHandle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from checkpoint_store.files.element_columns import EXPIRES
from spark_state.keyed_state.element_serializers import ElementSerializer, Value
from spark_state.keyed_state.keyed_tables import KeyedElementTable
from spark_state.keyed_state.state_rows import StateSerializer

E = TypeVar("E")
Expiring = tuple[Value, int]
"""A value and the expiry time, in milliseconds since 1970."""


@dataclass(slots=True)
class EpochClock:
    """The time of the current epoch, in milliseconds since 1970. All tasks of the epoch have this
    time."""

    now_ms: int = 0


def expiry_of(_element: Any, value: Expiring) -> int:
    """Return the expiry time of an element. Serves as a DueTime, see keyed_tables."""
    return value[1]


class ExpiringElements(Generic[E]):
    """A KeyedElementTable whose elements live for `ttl_ms` after the last put."""

    def __init__(
        self, table: KeyedElementTable[E, Expiring], ttl_ms: int, clock: EpochClock
    ) -> None:
        self._table = table
        self._ttl_ms = ttl_ms
        self._clock = clock

    def exists(self) -> bool:
        return self._table.exists() and bool(self.elements())

    def get(self, element: E) -> Value | None:
        held = self._table.get(element)
        return None if held is None or held[1] <= self._clock.now_ms else held[0]

    def put(self, element: E, value: Value) -> None:
        self._table.put(element, (value, self._clock.now_ms + self._ttl_ms))

    def append(self, values: Sequence[Value]) -> None:
        expires_ms = self._clock.now_ms + self._ttl_ms
        self._table.append([(value, expires_ms) for value in values])

    def remove(self, element: E) -> None:
        self._table.remove(element)

    def elements(self) -> list[tuple[E, Value]]:
        now_ms = self._clock.now_ms
        return [
            (element, value)
            for element, (value, expires_ms) in self._table.elements()
            if expires_ms > now_ms
        ]

    def clear(self) -> None:
        self._table.clear()


class ExpiringValues:
    """A KeyedStateTable whose values expire. `elements` holds the value of a key as the element
    named ()."""

    def __init__(self, elements: ExpiringElements[tuple[()]]) -> None:
        self._elements = elements

    def get(self) -> Value | None:
        return self._elements.get(())

    def put(self, state: Value) -> None:
        self._elements.put((), state)

    def remove(self) -> None:
        self._elements.remove(())


class ExpiringSerializer(ElementSerializer):
    """A serializer for elements with an expiry time. `elements`: the serializer for the same
    elements without an expiry time. In files, the struct of an element has one more field,
    `_expires_ms`."""

    def __init__(self, elements: StateSerializer[Any]) -> None:
        self._elements = elements
        self.struct_type = pa.struct([*elements.struct_type, pa.field(EXPIRES, pa.int64())])

    def to_arrow(self, rows: Sequence[Any]) -> pa.StructArray:
        plain = [
            None if row is None else (row[0], None if row[1] is None else row[1][0]) for row in rows
        ]
        expiries = [None if row is None or row[1] is None else row[1][1] for row in rows]
        column = self._elements.to_arrow(plain)
        arrays: list[Any] = [*column.flatten(), pa.array(expiries, pa.int64())]
        absent: Any = pa.array([row is None for row in rows], pa.bool_())
        fields = [field.with_nullable(True) for field in self.struct_type]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=absent)

    def from_arrow(self, array: Any) -> list[Any]:
        *columns, expiries = array.flatten()
        fields = list(self.struct_type)[:-1]
        plain: Any = pa.StructArray.from_arrays(
            columns, fields=[f.with_nullable(True) for f in fields], mask=array.is_null()
        )
        return [
            None if row is None else (row[0], None if row[1] is None else (row[1], expires_ms))
            for row, expires_ms in zip(
                self._elements.from_arrow(plain), expiries.to_pylist(), strict=True
            )
        ]
