"""Estimates of the bytes that a heap table takes. The cost does not grow with the table.

The bytes of the bucket arrays are measured. The bytes of the entries are extrapolated from a
sample:

    values      bytes of a table's buckets + entries * mean bytes of an entry with its value
    elements    bytes of a table's buckets + keys * mean bytes of a key
                                           + elements * mean bytes of an element, with its due time

A small table is measured as a whole. Otherwise the sample is drawn: choose a random map, with a
probability proportional to the map's size, and a random bucket of the map; take all entries of the
first bucket from there on that is not empty. So an entry behind empty buckets is drawn more often.
This does no harm, because the place of an entry, given by its hash, does not depend on its size.

For the bytes of a value, see keyed_state.object_sizes. A key with several states counts once in
each state. The estimate leaves out undo records, old entries that only a snapshot still holds, and
all other memory of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from random import Random
from sys import getsizeof
from typing import Any

from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap, chain
from spark_state.heap.state_map_entry import StateMapEntry
from spark_state.keyed_state.object_sizes import FEW, aligned, bytes_of

_ELEMENTS = 8
_BUCKETS = 128
_MOST_BUCKETS_OF_ENTRY = 16

# No decision depends on the choice of entries, so all tables share one random sequence.
_CHANCE = Random(0)

Map = CopyOnWriteStateMap[Any, Any]
Entry = StateMapEntry[Any, Any]


def bytes_of_values(maps: Collection[Map], looked_at: int = FEW) -> int:
    """Estimate the bytes of the maps of a value state from about `looked_at` entries."""
    sample = _some_entries(maps, looked_at)
    together = sum(_bytes_of_entry(entry) + bytes_of(entry.state) for entry in sample)
    each = together / max(len(sample), 1)
    return _bytes_of_buckets(maps) + round(each * sum(map(len, maps)))


def bytes_of_elements(
    maps: Collection[Map],
    elements: int,
    due_bytes: Callable[[Any, Any], float],
    looked_at: int = FEW,
) -> int:
    """Estimate the bytes of the maps of a state from about `looked_at` keys. `elements`: number of
    all elements. `due_bytes(element, value)`: returns the bytes that the index of due times takes
    for the element."""
    sample = _some_entries(maps, looked_at)
    of_keys = of_elements = 0.0
    sampled_elements = 0
    for entry in sample:
        values = entry.state.values
        some = [*islice(values.items(), _ELEMENTS)]
        of_keys += _bytes_of_entry(entry) + aligned(getsizeof(entry.state))
        each = sum(
            bytes_of(element) + bytes_of(value) + due_bytes(element, value)
            for element, value in some
        ) / len(some)
        of_elements += getsizeof(values) + each * len(values)
        sampled_elements += len(values)
    key_bytes = of_keys / max(len(sample), 1) * sum(map(len, maps))
    element_bytes = of_elements / max(sampled_elements, 1) * elements
    return _bytes_of_buckets(maps) + round(key_bytes + element_bytes)


def _bytes_of_buckets(maps: Collection[Map]) -> int:
    return sum(
        getsizeof(state_map.primary_table) + getsizeof(state_map.incremental_rehash_table)
        for state_map in maps
    )


def _some_entries(maps: Collection[Map], number: int) -> list[Entry]:
    """Return a sample of about `number` entries, drawn as the module says. The sample may be
    empty."""
    filled = [state_map for state_map in maps if len(state_map)]
    if not filled:
        return []
    tables = [
        table
        for state_map in filled
        for table in (state_map.primary_table, state_map.incremental_rehash_table)
    ]
    is_little = sum(map(len, filled)) <= number
    if is_little and sum(map(len, tables)) <= _MOST_BUCKETS_OF_ENTRY * number:
        return [
            entry for table in tables for first in filter(None, table) for entry in chain(first)
        ]
    chosen = _CHANCE.choices(filled, weights=[*map(len, filled)], k=number)
    return [entry for state_map in chosen for entry in _some_chain(state_map)]


def _some_chain(state_map: Map) -> Iterator[Entry]:
    """Yield the entries of the first bucket that is not empty, from a random bucket on; nothing if
    the next 128 buckets are empty."""
    in_rehash = _CHANCE.randrange(len(state_map)) < state_map.incremental_rehash_table_size
    table = state_map.incremental_rehash_table if in_rehash else state_map.primary_table
    chosen = _CHANCE.randrange(len(table))
    yield from chain(next(filter(None, table[chosen : chosen + _BUCKETS]), None))


def _bytes_of_entry(entry: Entry) -> int:
    """Estimate the bytes that an entry takes with its key, without its state."""
    return aligned(getsizeof(entry)) + bytes_of(entry.key) + bytes_of(entry.hash)
