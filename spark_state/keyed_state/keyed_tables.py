"""The protocols between states and a backend: a table has the values or elements of one state.

All methods act on the current key, see CurrentKey.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
E = TypeVar("E")
V = TypeVar("V")
DueTime = Callable[[Any, Any], int]
"""Function of an element and a value. Returns the due time, in milliseconds since 1970."""


class KeyedStateTable(Protocol[S]):
    """The values of a value state. After `put` the state object belongs to the table. Callers must
    not change a state object that `get` returns."""

    def get(self) -> S | None: ...

    def put(self, state: S) -> None: ...

    def remove(self) -> None: ...


class KeyedElementTable(Protocol[E, V]):
    """The elements of a list state, a map state or timers: values by the name of the element within
    the key.

    The name of an element is the user key in a map, the number in a list, the time of a timer.
    Values never change in place. So a change costs the elements concerned, however many elements
    the key has.
    """

    def exists(self) -> bool:
        """Return True if the key has an element."""

    def get(self, element: E) -> V | None: ...

    def put(self, element: E, value: V) -> None: ...

    def append(self, values: Sequence[V]) -> None:
        """Put values under consecutive numbers, greater than all elements. All elements must be
        numbers."""

    def remove(self, element: E) -> None:
        """Remove an element, if present."""

    def elements(self) -> list[tuple[E, V]]:
        """Return all current elements with their values, in order. See `frozen_keys.in_order`."""

    def clear(self) -> None:
        """Remove all elements of the key."""
