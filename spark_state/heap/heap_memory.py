"""About how many bytes a table on the heap takes: an estimate, at a cost that does not grow.

The tables of buckets are measured. Some entries are looked at, the others count like these:

    values      bytes of a table's buckets + entries * mean bytes of an entry with its value
    elements    bytes of a table's buckets + keys * mean bytes of a key
                                           + elements * mean bytes of an element, with its due time

If there are not more, all are looked at. Otherwise chance chooses a map, the larger the likelier,
and a place in its table of buckets. The entries of the first bucket from there on that is not empty
are looked at. So an entry behind empty buckets is likelier than another, but hashes do not depend
on sizes.

Values count for what Python says of their objects, some levels deep. What all values share, such as
small integers, counts for nothing. A key of several states counts in each. What is kept to undo an
epoch, what a snapshot still holds of the past, and the rest of the process are left out.
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

# Which entries are looked at is no decision of anything, so all tables share one sequence.
_CHANCE = Random(0)

Map = CopyOnWriteStateMap[Any, None, Any]
Entry = StateMapEntry[Any, None, Any]


def bytes_of_values(maps: Collection[Map], looked_at: int = FEW) -> int:
    """The maps of a value state, by about so many entries."""
    sample = _some_entries(maps, looked_at)
    if not sample:
        return _bytes_of_buckets(maps)
    each = sum(_bytes_of_entry(entry) + bytes_of(entry.state) for entry in sample) / len(sample)
    return _bytes_of_buckets(maps) + round(each * sum(map(len, maps)))


def bytes_of_elements(
    maps: Collection[Map],
    elements: int,
    due_bytes: Callable[[Any, Any], float],
    looked_at: int = FEW,
) -> int:
    """The maps of a state with so many elements, by about so many keys. `due_bytes`: what the index
    of what is due takes for an element and its value."""
    sample = _some_entries(maps, looked_at)
    if not sample:
        return _bytes_of_buckets(maps)
    of_keys = of_elements = 0.0
    for entry in sample:
        values = entry.state.values
        some = [*islice(values.items(), _ELEMENTS)]
        of_keys += _bytes_of_entry(entry) + aligned(getsizeof(entry.state))
        each = sum(
            bytes_of(element) + bytes_of(value) + due_bytes(element, value)
            for element, value in some
        ) / len(some)
        of_elements += getsizeof(values) + each * len(values)
    key_bytes = of_keys / len(sample) * sum(map(len, maps))
    element_bytes = of_elements / sum(len(entry.state.values) for entry in sample) * elements
    return _bytes_of_buckets(maps) + round(key_bytes + element_bytes)


def _bytes_of_buckets(maps: Collection[Map]) -> int:
    return sum(
        getsizeof(state_map.primary_table) + getsizeof(state_map.incremental_rehash_table)
        for state_map in maps
    )


def _some_entries(maps: Collection[Map], number: int) -> list[Entry]:
    """About so many entries of these maps, chosen as the module says; it may be none."""
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
    """The entries of a bucket that is not empty; none if there is none near one chosen bucket."""
    in_rehash = _CHANCE.randrange(len(state_map)) < state_map.incremental_rehash_table_size
    table = state_map.incremental_rehash_table if in_rehash else state_map.primary_table
    chosen = _CHANCE.randrange(len(table))
    yield from chain(next(filter(None, table[chosen : chosen + _BUCKETS]), None))


def _bytes_of_entry(entry: Entry) -> int:
    """What an entry takes without its state."""
    return aligned(getsizeof(entry)) + bytes_of(entry.key) + bytes_of(entry.hash)
