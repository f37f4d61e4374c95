"""The seam between a list or map state, or timers, and a backend: elements of the current key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

E = TypeVar("E")
V = TypeVar("V")
DueTime = Callable[[Any, Any], int]
"""When an element with its value is due, in milliseconds since 1970."""


class KeyedElementTable(Protocol[E, V]):
    """The elements that each key has in one state: values by what names them within the key.

    A user key names an element of a map, its number one of a list, its time a timer. All act on the
    current key, see CurrentKey. Values are never changed in place, so a change costs the elements
    that it touches, however many the key has.
    """

    def exists(self) -> bool:
        """Whether the key has an element."""

    def get(self, element: E) -> V | None: ...

    def put(self, element: E, value: V) -> None: ...

    def append(self, values: Sequence[V]) -> None:
        """Put values under the numbers that follow those of all elements; they are all numbers."""

    def remove(self, element: E) -> None:
        """Remove an element, if it is there."""

    def elements(self) -> list[tuple[E, V]]:
        """All elements as they are now, in their order. See `frozen_keys.in_order`."""

    def clear(self) -> None:
        """Remove all elements of the key."""
