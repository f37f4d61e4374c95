"""Restored entries of a value state that stay Arrow columns until their first use.

Converting all rows to Python objects in a restore would take some microseconds for each row, and
most keys are not used soon. So the rows of the files stay Arrow columns, in packs. The first
look-up of a key takes the key's entry out of its pack; from then on the entry is in the maps of the
table.

A pack finds rows by the hashes of their keys. The hashes are sorted, with the row of each hash
beside it, and a binary search finds the rows with the hash of a key. Then the keys are compared,
because different keys may have the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkpoint_store.states.key_hashes import Hashes, key_hashes
from spark_state.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_rows import StateRows, StateSerializer

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
        """Return the states. No row may be a deletion."""
        return cast(list[S], self._serializer.from_arrow(_array(self.table[_STATE])))

    def key_groups(self) -> npt.NDArray[np.int32]:
        return self.table[_GROUP].to_numpy()

    def are_present(self) -> npt.NDArray[np.bool_]:
        """Return for each row True if the row has a state, False if the row is a deletion."""
        return self.table[_STATE].is_valid().to_numpy()

    def take(self, rows: RowNumbers) -> PackedRows[S]:
        taken = self.table.take(pa.array(rows, pa.int64()))
        return PackedRows(taken, self._key_columns, self._serializer)

    def have_equal_keys(self, some: RowNumbers, others: RowNumbers) -> bool:
        """Return True if row `some[i]` has the same key as row `others[i]`, for each i. May also
        return False for equal keys, if their type is floating-point or nested."""
        mine, theirs = self.take(some).table, self.take(others).table
        for name, arrow_type in zip(
            _names(self._key_columns), self._key_columns.arrow_types, strict=True
        ):
            if pa.types.is_nested(arrow_type) or not mine[name].equals(theirs[name]):
                return False
        return True

    def hashes(self) -> Hashes:
        return key_hashes(self.table, _names(self._key_columns))

    def hashes_of(self, keys: Sequence[Key]) -> Hashes:
        """Return the hashes of keys, equal to the hashes of rows with the same keys."""
        names = _names(self._key_columns)
        if not names:
            return np.zeros(len(keys), np.uint64)
        return key_hashes(pa.Table.from_arrays(self._key_columns.to_arrow(keys), names), names)


@dataclass(frozen=True, slots=True)
class PackSnapshot(Generic[S]):
    """The entries of a pack at one moment. `ranges`: for each key group the number of its first
    row, and the number after its last row. `is_left`: for each row True if the row is an entry that
    was not taken."""

    rows: PackedRows[S]
    ranges: Mapping[int, tuple[int, int]]
    is_left: npt.NDArray[np.bool_]

    def entries(self, key_group: int) -> Iterator[tuple[Key, S]]:
        """Yield (key, state) of each entry of a key group."""
        start, end = self.ranges.get(key_group, (0, 0))
        left = self.rows.take(start + np.flatnonzero(self.is_left[start:end]))
        yield from zip(left.keys(), left.states(), strict=True)


def packs_of(parts: Sequence[StateRows]) -> Iterator[PackedEntries[Any]]:
    """Pack the rows of files. `parts`: in the order in which the files are applied, with at least
    one row, and with the same types of key columns. The last row of a key counts, which may be a
    deletion."""
    key_columns, serializer = parts[0].keys.key_columns, parts[0].serializer
    names = [*_names(key_columns), _GROUP, _STATE]
    table = pa.concat_tables(
        pa.Table.from_arrays([*part.keys.columns, part.key_groups, part.states], names)
        for part in parts
    )
    groups = table[_GROUP].to_numpy()
    # An Arrow array of text addresses at most 2 GiB. Packs stay well below.
    most_rows = len(groups) * _MOST_BYTES // max(table.nbytes, 1)
    for first, last in _cut(*np.unique(groups, return_counts=True), most_rows):
        of_pack = table.filter(pa.array((groups >= first) & (groups <= last)))
        # A stable sort keeps the order of the files within a key.
        in_order = np.argsort(of_pack[_GROUP].to_numpy(), kind="stable")
        rows = of_pack.take(pa.array(in_order)).combine_chunks()
        yield PackedEntries(PackedRows(rows, key_columns, serializer))


def _cut(
    groups: npt.NDArray[np.int32], sizes: npt.NDArray[np.int64], most_rows: int
) -> Iterator[tuple[int, int]]:
    """Yield the first and the last key group of each pack. A pack has at most `most_rows` rows, or
    a single key group. `groups`: the key groups in order; `sizes`: the rows of each key group."""
    first = last = int(groups[0])
    rows = 0
    for group, size in zip(groups.tolist(), sizes.tolist(), strict=True):
        if rows and rows + size > most_rows:
            yield first, last
            first, rows = group, 0
        last, rows = group, rows + size
    yield first, last


@dataclass(frozen=True, slots=True)
class FoundEntry(Generic[S]):
    """An entry in a pack, with the number of its row."""

    key: Key
    key_group: int
    state: S
    row: int


class PackedEntries(Generic[S]):
    """A pack: entries that are still Arrow rows. `rows`: sorted by key group. The last row of a key
    is the key's entry; if the state in this row is null, the key has no entry. One thread uses a
    pack; other threads may read its snapshots."""

    def __init__(self, rows: PackedRows[S]) -> None:
        hashes = rows.hashes()
        order = np.argsort(hashes, kind="stable")
        self._set(rows, hashes[order], order)
        self._is_left[self._replaced()] = False
        self._is_left &= rows.are_present()
        self._keep_left()

    def _replaced(self) -> RowNumbers:
        """Return the rows that have a later row of the same key."""
        # Rows of the same key have the same hash. The later row is behind the earlier row.
        is_next_same = self._hashes[:-1] == self._hashes[1:]
        before: RowNumbers = self._order[:-1][is_next_same]
        after: RowNumbers = self._order[1:][is_next_same]
        if self._rows.have_equal_keys(before, after):
            return before
        of_hash = np.unique(np.concatenate([before, after]))
        last = dict(zip(self._rows.take(of_hash).keys(), of_hash.tolist(), strict=True))
        replaced: RowNumbers = np.setdiff1d(of_hash, [*last.values()])
        return replaced

    def _set(self, rows: PackedRows[S], hashes: Hashes, order: RowNumbers) -> None:
        """Set the rows of the pack, all of which count as entries. `hashes`: the hashes of the
        rows' keys, in ascending order; `order`: the row of each hash."""
        groups, starts, sizes = np.unique(rows.key_groups(), return_index=True, return_counts=True)
        ranges = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        ranges_of_groups = dict(zip(groups.tolist(), ranges, strict=True))
        is_left = np.ones(len(order), np.bool_)
        sizes_of_groups = dict(zip(groups.tolist(), sizes.tolist(), strict=True))
        # Nothing is assigned before all arrays are made: if memory ends, the pack is as it was.
        self._rows, self._hashes, self._order = rows, hashes, order
        self._ranges, self._sizes, self._is_left = ranges_of_groups, sizes_of_groups, is_left

    def __len__(self) -> int:
        """Return the number of entries that were not taken."""
        return sum(self._sizes.values())

    def __iter__(self) -> Iterator[Key]:
        """Yield the key of each entry that was not taken."""
        yield from self._rows.take(np.flatnonzero(self._is_left)).keys()

    def memory_bytes(self) -> int:
        """Return the bytes of all arrays."""
        arrays = (self._hashes, self._order, self._is_left)
        return self._rows.table.nbytes + sum(array.nbytes for array in arrays)

    def sizes(self) -> Mapping[int, int]:
        """Return the number of entries of each key group of the pack."""
        return self._sizes

    def snapshot(self) -> PackSnapshot[S]:
        """Return a snapshot of the entries that were not taken. Later calls of `leave_out` do not
        change the snapshot."""
        return PackSnapshot(self._rows, self._ranges, self._is_left.copy())

    def find(self, keys: Sequence[Key]) -> Iterator[FoundEntry[S]]:
        """Yield the entries of those `keys` that have an entry here. `keys` must have no key
        twice."""
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
        entries = zip(
            found.keys(), found.key_groups().tolist(), found.states(), rows.tolist(), strict=True
        )
        for number, (key, key_group, state, row) in zip(key_numbers, entries, strict=True):
            if keys[number] == key:
                yield FoundEntry(key, key_group, state, row)

    def leave_out(self, entry: FoundEntry[S]) -> None:
        """Note that a found entry has been taken."""
        self._is_left[entry.row] = False
        self._sizes[entry.key_group] -= 1

    def compact(self) -> None:
        """Free the memory of taken rows, if less than a quarter of the rows is left. The results of
        earlier calls of `find` are invalid afterwards."""
        if len(self) < _LEAST_SHARE_LEFT * len(self._is_left):
            self._keep_left()

    def _keep_left(self) -> None:
        """Keep only the rows that are entries and were not taken."""
        is_left = self._is_left
        if is_left.all():
            return
        new_number = np.cumsum(is_left) - 1
        keeps = is_left[self._order]
        order = new_number[self._order[keeps]]
        self._set(self._rows.take(np.flatnonzero(is_left)), self._hashes[keeps], order)


@dataclass(frozen=True, slots=True)
class KeyGroupSnapshot(Generic[S]):
    """The entries of a key group at one moment. `in_map`: entries in the key group's map, None if
    there is no map; `packs`: packed entries, also of other key groups."""

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
    """Return the names of the key columns in the table of packed rows: numbers, so that they differ
    from the names of the other columns."""
    return [str(number) for number in range(len(key_columns.names))]


def _array(column: Any) -> Any:
    return column.combine_chunks()
