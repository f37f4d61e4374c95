"""Input for the restore of a backend: the states, and the files with the entries of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checkpoint_store.files.database_file_store import DatabaseFileStore
from checkpoint_store.files.state_handle import StateHandle
from spark_state.state_descriptor import StateDescriptor


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state to register in a backend. `since`: the state's first epoch. Files of earlier epochs
    may have entries of a deleted state of the same name; the restore skips these entries."""

    descriptor: StateDescriptor
    since: int


@dataclass(frozen=True, slots=True)
class BackendRestore:
    """Input for the restore of a backend.

    - `handles`: the files, in the order to apply.
    - `states`: the states to register.
    - `source`: the store of database files.
    - `check`: raises if the task is gone, so that the restore ends.
    """

    handles: tuple[StateHandle, ...]
    states: Sequence[StoredState]
    source: DatabaseFileStore
    check: Callable[[], None]
