"""The seam between value states and a backend: values of one state, seen from the current key."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

Key = tuple[Any, ...]
S = TypeVar("S")


class KeyedStateTable(Protocol[S]):
    """The entries of one state within the backend's key groups.

    All but `set_current_key` act on the key that it named last. A state that was put belongs to the
    table; a state that `get` returns must not be changed.
    """

    def set_current_key(self, key: Key, key_group: int) -> None: ...

    def get(self) -> S | None: ...

    def put(self, state: S) -> None: ...

    def remove(self) -> None: ...
