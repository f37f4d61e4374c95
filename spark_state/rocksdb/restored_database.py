"""A RocksDB database that came from a store, and what of it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from checkpoint_store.files.database_contents import DatabaseContents, DatabaseState
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart
from spark_state.rocksdb.database import Range
from spark_state.rocksdb.row_keys import of_key_group
from spark_state.state_descriptor import StateDescriptor

ENGINE = "rocksdb"
ROWS_VERSION = 1
"""How rows are written: see row_keys, ordered_bytes, packed_values. A release that writes them
otherwise has another number."""


@dataclass(frozen=True, slots=True)
class RestoredDatabase:
    """`key_groups`: those that count, in order; `states`: the names of the states that count;
    `tables`: what its files are in the store, by their local names."""

    contents: DatabaseContents
    key_groups: tuple[KeyGroupRange, ...]
    states: frozenset[str]
    tables: dict[str, FilePart]

    def state(self, descriptor: StateDescriptor) -> DatabaseState | None:
        """What it has of a state; None if it has nothing."""
        if descriptor.name not in self.states:
            return None
        held = (state for state in self.contents.states if state.name == descriptor.name)
        return next(held, None)

    def ranges(self) -> list[Range]:
        """The rows that count."""
        return [
            (of_key_group(key_groups.start), of_key_group(key_groups.end + 1))
            for key_groups in self.key_groups
        ]

    def entries(self, state: DatabaseState) -> dict[int, int]:
        """How many entries of a state count, by key group."""
        return {
            key_group: entries
            for key_group, entries in state.entries.items()
            if any(key_group in key_groups for key_groups in self.key_groups)
        }


def has_same_rows(contents: DatabaseContents, states: Iterable[StateDescriptor]) -> bool:
    """Whether these states are written in a database as this release would write them."""
    held: Mapping[str, DatabaseState] = {state.name: state for state in contents.states}
    return (contents.engine, contents.rows_version) == (ENGINE, ROWS_VERSION) and all(
        _is_same(held[state.name], state) for state in states if state.name in held
    )


def _is_same(held: DatabaseState, state: StateDescriptor) -> bool:
    expire_alike = (held.ttl_ms is None) == (state.ttl_ms is None)
    return held.kind == state.kind and expire_alike and held.value_type.equals(state.value_type)
