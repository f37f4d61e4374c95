"""Restored entries of a value state that stay rows of Arrow until their first use.

A restore that makes Python objects of all rows takes some microseconds for each row, and most keys
are not used soon. So the rows of the files stay columns. The first look-up of a key takes the entry
out of the pack; from then on the entry is in the maps of the table.

A pack finds rows by the hashes of their keys. The hashes are sorted, with the row of each hash
beside it, and a binary search finds the rows with the hash of a key. Then the keys are compared,
because different keys may have the same hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.states.key_hashes import Hashes, key_hashes
from spark_state.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_rows import StateRows, StateSerializer

# The type stubs of pyarrow.compute reject valid arguments, such as an array of any type.
pc: Any = pyarrow.compute

S = TypeVar("S")
RowNumbers = npt.NDArray[np.int64]

_LEAST_SHARE_LEFT = 0.25
_MOST_BYTES = 1 << 30
_GROUP, _STATE = "group", "state"


class PackedRows(Generic[S]):
    """Rows of one state: a column for each key column, the key group and the state."""

    def __init__(
        self, table: pa.Table, key_columns: KeyColumns, serializer: StateSerializer[S]
    ) -> None:
        self.table = table
        self._key_columns = key_columns
        self._serializer = serializer

    def keys(self) -> list[Key]:
        columns = [_array(self.table[name]) for name in _names(self._key_columns)]
        return self._key_columns.to_keys(columns, self.table.num_rows)

    def states(self) -> list[S]:
        """Return the states of rows that are no deletions."""
        return cast(list[S], self._serializer.from_arrow(_array(self.table[_STATE])))

    def key_groups(self) -> npt.NDArray[np.int32]:
        return self.table[_GROUP].to_numpy()

    def are_present(self) -> npt.NDArray[np.bool_]:
        """Return for each row True if the row has a state, and is no deletion."""
        return self.table[_STATE].is_valid().to_numpy()

    def take(self, rows: RowNumbers) -> PackedRows[S]:
        taken = self.table.take(pa.array(rows, pa.int64()))
        return PackedRows(taken, self._key_columns, self._serializer)

    def hashes(self) -> Hashes:
        return key_hashes(self.table, _names(self._key_columns))

    def hashes_of(self, keys: Sequence[Key]) -> Hashes:
        """Return the hashes of keys that may be in the rows."""
        names = _names(self._key_columns)
        return key_hashes(pa.Table.from_arrays(self._key_columns.to_arrow(keys), names), names)


@dataclass(frozen=True, slots=True)
class PackSnapshot(Generic[S]):
    """The entries of a pack at one moment. `runs`: for each key group the ranges of its rows.
    `is_left`: for each row True if the row was not taken."""

    rows: PackedRows[S]
    runs: dict[int, list[tuple[int, int]]]
    is_left: npt.NDArray[np.bool_]

    def entries(self, key_group: int) -> Iterator[tuple[Key, S]]:
        """Yield key and state of the entries of a key group."""
        for start, end in self.runs.get(key_group, ()):
            left = self.rows.take(start + np.flatnonzero(self.is_left[start:end]))
            yield from zip(left.keys(), left.states(), strict=True)


def packs_of(parts: Sequence[StateRows]) -> list[PackedEntries[Any]]:
    """Pack the rows of files, in the order in which the files apply: the last row of a key counts,
    and may be a deletion. `parts`: at least one row, with at least one key column."""
    key_columns, serializer = parts[0].keys.key_columns, parts[0].serializer
    names = [*_names(key_columns), _GROUP, _STATE]
    table = pa.concat_tables(
        pa.Table.from_arrays([*part.keys.columns, part.key_groups, part.states], names)
        for part in parts
    )
    groups = table[_GROUP]
    number = len(pc.unique(groups))
    # Arrow cannot address more bytes of text in an array.
    if table.nbytes <= _MOST_BYTES or number == 1:
        tables = [table]
    else:
        of_pack = pc.divide(groups, pa.scalar(max(number * _MOST_BYTES // table.nbytes, 1)))
        tables = [table.filter(pc.equal(of_pack, each)) for each in pc.unique(of_pack)]
    packs: list[PackedEntries[Any]] = [
        PackedEntries(PackedRows(each.combine_chunks(), key_columns, serializer)) for each in tables
    ]
    return [pack for pack in packs if len(pack)]


class PackedEntries(Generic[S]):
    """The entries of a key are the last of its rows in `rows`; null if the key is deleted. One
    thread uses a pack; other threads may read its snapshots."""

    def __init__(self, rows: PackedRows[S]) -> None:
        hashes = rows.hashes()
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        self._set(rows, hashes, order)
        # Rows of the same key have the same hash. The later row is behind the earlier row.
        is_next_same = hashes[:-1] == hashes[1:]
        is_shared = np.append(is_next_same, False) | np.insert(is_next_same, 0, False)
        of_keys = order[is_shared]
        last = dict(zip(rows.take(of_keys).keys(), of_keys.tolist(), strict=True))
        self._is_left[of_keys] = False
        self._is_left[[*last.values()]] = True
        self._is_left &= rows.are_present()
        self._drop_taken()

    def _set(self, rows: PackedRows[S], hashes: Hashes, order: RowNumbers) -> None:
        """Set the rows, all of them entries. `hashes`: in ascending order; `order`: their rows."""
        groups = rows.key_groups()
        changes = (np.flatnonzero(np.diff(groups)) + 1).tolist()
        starts = [0, *changes, len(groups)] if len(groups) else []
        self._rows, self._hashes, self._order = rows, hashes, order
        self._runs: dict[int, list[tuple[int, int]]] = {}
        for start, end in pairwise(starts):
            self._runs.setdefault(int(groups[start]), []).append((start, end))
        self._is_left = np.ones(len(groups), np.bool_)
        self._sizes = Counter[int](groups.tolist())
        if len(groups):
            self.key_groups = KeyGroupRange(min(self._sizes), max(self._sizes))

    def __len__(self) -> int:
        """Return the number of entries that were not taken."""
        return self._sizes.total()

    def __iter__(self) -> Iterator[Key]:
        """Yield the key of each entry that was not taken."""
        yield from self._rows.take(np.flatnonzero(self._is_left)).keys()

    def memory_bytes(self) -> int:
        """Return the bytes of all arrays."""
        arrays = (self._hashes, self._order, self._is_left)
        return self._rows.table.nbytes + sum(array.nbytes for array in arrays)

    def sizes(self) -> Mapping[int, int]:
        """Return the number of entries of each key group."""
        return self._sizes

    def snapshot(self) -> PackSnapshot[S]:
        """Return the entries that were not taken. Later calls of `take` do not change the
        snapshot."""
        return PackSnapshot(self._rows, self._runs, self._is_left.copy())

    def take(self, keys: Sequence[Key]) -> list[tuple[Key, int, S]]:
        """Take out the entries of keys, and return key, key group and state of each. Keys without
        an entry are left out. `keys` must have no key twice."""
        wanted = self._rows.hashes_of(keys)
        first = np.searchsorted(self._hashes, wanted, "left")
        counts = np.searchsorted(self._hashes, wanted, "right") - first
        # A pair of a key and a row for each row with the hash of the key.
        key_numbers = np.repeat(np.arange(len(keys)), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        rows = self._order[first[key_numbers] + np.arange(len(key_numbers)) - before]
        is_left = self._is_left[rows]
        key_numbers, rows = key_numbers[is_left].tolist(), rows[is_left]
        found = self._rows.take(rows)
        entries = zip(found.keys(), found.key_groups().tolist(), found.states(), strict=True)
        of_keys = [
            (entry, row)
            for number, entry, row in zip(key_numbers, entries, rows.tolist(), strict=True)
            if keys[number] == entry[0]
        ]
        self._is_left[[row for _, row in of_keys]] = False
        taken = [entry for entry, _ in of_keys]
        self._sizes.subtract(key_group for _, key_group, _ in taken)
        if 0 < len(self) < _LEAST_SHARE_LEFT * len(self._is_left):
            self._drop_taken()
        return taken

    def _drop_taken(self) -> None:
        """Free the memory of all rows but the entries that were not taken."""
        is_left = self._is_left
        if is_left.all():
            return
        new_number = np.cumsum(is_left) - 1
        keeps = is_left[self._order]
        order = new_number[self._order[keeps]]
        self._set(self._rows.take(np.flatnonzero(is_left)), self._hashes[keeps], order)


@dataclass(frozen=True, slots=True)
class KeyGroupSnapshot(Generic[S]):
    """The entries of a key group at one moment: entries in a map, and packed entries."""

    key_group: int
    in_map: CopyOnWriteStateMapSnapshot[Key, S] | None
    packs: Sequence[PackSnapshot[S]]

    def __iter__(self) -> Iterator[tuple[Key, S]]:
        """Yield (key, state) of every entry."""
        if self.in_map is not None:
            yield from self.in_map
        for pack in self.packs:
            yield from pack.entries(self.key_group)

    def release(self) -> None:
        """Let the map forget the snapshot. Safe to call again."""
        if self.in_map is not None:
            self.in_map.release()


def _names(key_columns: KeyColumns) -> list[str]:
    """Return names for the key columns of packed rows, different from all other names."""
    return [str(number) for number in range(len(key_columns.names))]


def _array(column: Any) -> Any:
    return column.combine_chunks()
