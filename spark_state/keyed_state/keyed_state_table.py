"""The seam between states and a backend: the entries of one state, seen from the current key."""

from __future__ import annotations

from typing import Any, Protocol

Key = tuple[Any, ...]
State = tuple[Any, ...]


class KeyedStateTable(Protocol):
    """The entries of one state within the backend's key groups.

    `get`, `put` and `remove` act on the key that `set_current_key` named last. A state that was
    put belongs to the table; a state that `get` returns must not be changed.
    """

    def set_current_key(self, key: Key, key_group: int) -> None: ...

    def get(self) -> State | None: ...

    def put(self, state: State) -> None: ...

    def remove(self) -> None: ...
