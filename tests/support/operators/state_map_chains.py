"""Copy-on-write maps with chosen chains, and access to the entries of the maps.

From outside, tests could not see the sharing of entries between a snapshot and its map until an
error.
"""

from __future__ import annotations

from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot
from spark_state.heap.state_map_entry import StateMapEntry
from tests.support.operators.state_map_model import ChosenHashKey

State = list[int]
Map = CopyOnWriteStateMap[ChosenHashKey, State]
Entry = StateMapEntry[ChosenHashKey, State]
Snapshot = CopyOnWriteStateMapSnapshot[ChosenHashKey, State]


def key(name: int, code: int | None = None) -> ChosenHashKey:
    return ChosenHashKey(name, name if code is None else code)


def chain(entry: Entry | None) -> list[Entry]:
    entries = []
    while entry is not None:
        entries.append(entry)
        entry = entry.next
    return entries


def bucket(entries: Map, index: int) -> list[Entry]:
    return chain(entries.primary_table[index])


def all_entries(entries: Map) -> dict[int, Entry]:
    tables = (*entries.primary_table, *entries.incremental_rehash_table)
    return {entry.key.name: entry for head in tables for entry in chain(head)}


def names(entries: list[Entry]) -> list[int]:
    return [entry.key.name for entry in entries]


def content(entries: Map | Snapshot) -> dict[int, State]:
    return {key.name: list(state) for key, state in entries}


def map_of_chain(*head_to_tail: int, capacity: int = 128) -> Map:
    """A map with the named keys in one chain in bucket 5. The state of each key is [name]."""
    entries: Map = CopyOnWriteStateMap(list, capacity)
    for name in reversed(head_to_tail):
        entries.put(key(name, 5), [name])
    return entries


def map_of_buckets(size: int, capacity: int) -> Map:
    """A map with key i in bucket i, one key per bucket."""
    entries: Map = CopyOnWriteStateMap(list, capacity)
    for name in range(size):
        entries.put(key(name), [name])
    return entries


def owned(entries: Map, key: ChosenHashKey) -> State:
    """The state of a key, ready to be changed."""
    entry = entries.find(key)
    assert entry is not None
    return entries.own_found(entry).state


def changed_state(entries: Map, key: ChosenHashKey) -> State:
    state = owned(entries, key)
    state.append(-1)
    return state
