"""The seam between value states and a backend: values of one state, seen from the current key."""

from __future__ import annotations

from typing import Protocol, TypeVar

S = TypeVar("S")


class KeyedStateTable(Protocol[S]):
    """The entries of one state within the backend's key groups.

    All act on the current key, see CurrentKey. A state that was put belongs to the table; a state
    that `get` returns must not be changed.
    """

    def get(self) -> S | None: ...

    def put(self, state: S) -> None: ...

    def remove(self) -> None: ...
