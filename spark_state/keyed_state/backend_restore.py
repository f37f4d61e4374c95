"""What a backend begins with: states, and the files of a store that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.state_handle import StateHandle
from spark_state.state_descriptor import StateDescriptor


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state as it is to be registered. `since`: the epoch that it began with; what older files
    have under its name does not count."""

    descriptor: StateDescriptor
    since: int


@dataclass(frozen=True, slots=True)
class BackendRestore:
    """`handles`: the files, in the order in which they apply; `source`: where those of databases
    are. `check` raises when nobody waits for the restore any more."""

    handles: tuple[StateHandle, ...]
    states: Sequence[StoredState]
    source: DatabaseFileStore
    check: Callable[[], None]
