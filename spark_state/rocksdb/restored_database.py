"""A RocksDB database from a store, and the part of the database that a restore uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from checkpoint_store.files.database_contents import DatabaseContents, DatabaseState
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle
from spark_state.rocksdb.database import Range
from spark_state.rocksdb.row_keys import of_key_group
from spark_state.state_descriptor import StateDescriptor

ENGINE = "rocksdb"
ROWS_VERSION = 1
"""Version of the format of rows: see row_keys, ordered_bytes, packed_values. A release that writes
rows in another format has another number."""


@dataclass(frozen=True, slots=True)
class RestoredDatabase:
    """A database from a store, and the part that a restore uses.

    - `handle`: a handle that names the database.
    - `contents`: the description of the whole database.
    - `key_groups`: the key groups that the restore uses, in order.
    - `states`: the names of the states that the restore uses.
    - `tables`: the database's tables in the store, by local name.
    """

    handle: StateHandle
    contents: DatabaseContents
    key_groups: tuple[KeyGroupRange, ...]
    states: frozenset[str]
    tables: dict[str, FilePart]

    def score(self) -> float:
        """Rate how well the database serves as the backend's own database: the number of key groups
        that the restore uses, times the square of their share of the database's key groups. The
        share counts, because rows of other key groups stay in the files for a time."""
        wanted = sum(map(len, self.key_groups))
        return wanted * (wanted / len(self.contents.key_groups)) ** 2

    def state(self, descriptor: StateDescriptor) -> DatabaseState | None:
        """Return the database's description of a state; None if the database lacks the state, or if
        the state is not among `states`."""
        if descriptor.name not in self.states:
            return None
        held = (state for state in self.contents.states if state.name == descriptor.name)
        return next(held, None)

    def ranges(self) -> list[Range]:
        """Return the ranges of the rows that the restore uses."""
        return [
            (of_key_group(key_groups.start), of_key_group(key_groups.end + 1))
            for key_groups in self.key_groups
        ]

    def entries(self, state: DatabaseState) -> dict[int, int]:
        """Return the number of entries of a state, for each key group that the restore uses."""
        return {
            key_group: entries
            for key_group, entries in state.entries
            if any(key_group in key_groups for key_groups in self.key_groups)
        }


def has_same_rows(contents: DatabaseContents, states: Iterable[StateDescriptor]) -> bool:
    """Return True if this release would write the rows of `states` as they are in the database. A
    state that the database lacks does not matter."""
    held: Mapping[str, DatabaseState] = {state.name: state for state in contents.states}
    return (contents.engine, contents.rows_version) == (ENGINE, ROWS_VERSION) and all(
        _is_same(held[state.name], state) for state in states if state.name in held
    )


def _is_same(held: DatabaseState, state: StateDescriptor) -> bool:
    expire_alike = (held.ttl_ms is None) == (state.ttl_ms is None)
    return held.kind == state.kind and expire_alike and held.value_type.equals(state.value_type)
