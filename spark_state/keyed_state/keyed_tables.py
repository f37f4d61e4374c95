"""The protocols of tables. A table has the values or elements of one state.

All methods act on the current key, see CurrentKey.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
E = TypeVar("E")
V = TypeVar("V")
DueTime = Callable[[Any, Any], int]
"""Function of an element and its value. Returns the time when the element is due (a timer fires, a
value expires), in milliseconds since 1970."""


class KeyedStateTable(Protocol[S]):
    """The values of a value state, one per key. Callers must not change an object after `put`, nor
    an object that `get` returns."""

    def get(self) -> S | None: ...

    def put(self, state: S) -> None: ...

    def remove(self) -> None: ...


class KeyedElementTable(Protocol[E, V]):
    """The elements of a list state, a map state or timers, and their values.

    Each element has a name: the user key in a map, a number in a list, the time for a timer.
    Values never change in place. So the cost of a change depends on the changed elements only,
    however many elements the key has.
    """

    def exists(self) -> bool:
        """Return True if the key has an element."""

    def get(self, element: E) -> V | None: ...

    def put(self, element: E, value: V) -> None: ...

    def append(self, values: Sequence[V]) -> None:
        """Add values under consecutive numbers, greater than the numbers of all elements of the
        key. Only for tables whose elements are numbers."""

    def remove(self, element: E) -> None:
        """Remove an element, if present."""

    def elements(self) -> list[tuple[E, V]]:
        """Return all current elements with their values, in order. See `frozen_keys.in_order`."""

    def clear(self) -> None:
        """Remove all elements of the key."""
