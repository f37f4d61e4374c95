"""The protocol between value states and a backend: the values of one state, for the current key."""

from __future__ import annotations

from typing import Protocol, TypeVar

S = TypeVar("S")


class KeyedStateTable(Protocol[S]):
    """The values of one state within the backend's key groups.

    All methods act on the current key, see CurrentKey. After `put` the state object belongs to the
    table. Callers must not change a state object that `get` returns.
    """

    def get(self) -> S | None: ...

    def put(self, state: S) -> None: ...

    def remove(self) -> None: ...
