"""Rows sorted by due time, for timers that fire and values that expire.

Rows are sorted by time within a key group. Memory has a lower bound of the earliest time of each
key group, so a search reads only key groups that may have due rows. The cost is O(due rows), plus a
step in memory for each key group.

The rows have the due times as of the last sealed epoch. The table of the state has the changes of
the current epoch, so a search skips elements that the current epoch has changed (`HasChanged`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.keyed_state.current_key import Key
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.rocksdb.database import Batch, ColumnFamily
from spark_state.rocksdb.ordered_bytes import encode_int
from spark_state.rocksdb.row_keys import RowKeys, key_group_of, of_key_group

Due = tuple[int, tuple[int, Key, Any]]
"""Time in milliseconds since 1970, and (key group, key, element)."""

HasChanged = Callable[[Key, Any], bool]
_FIRST_MS, _LAST_MS = -(1 << 63), (1 << 63) - 1


class DueRows:
    """The due times of one state's elements, in a column family. `due_time`: returns the due time
    of an element. The first search reads every key group, because the column family may already
    have rows."""

    def __init__(
        self, key_groups: KeyGroupRange, keys: RowKeys, family: ColumnFamily, due_time: DueTime
    ) -> None:
        self.family = family
        self.due_time = due_time
        self._keys = keys
        self._earliest = dict.fromkeys(key_groups, _FIRST_MS)

    def note(self, batch: Batch, time_ms: int, of_key: bytes, element: bytes) -> None:
        """Add the due time of an element. `of_key`: the bytes with which all rows of the key begin.
        `element`: the bytes of the element."""
        batch.put(self._keys.of_due(time_ms, of_key, element), b"", self.family.handle)
        key_group = key_group_of(of_key)
        if time_ms < self._earliest[key_group]:
            self._earliest[key_group] = time_ms

    def forget(self, batch: Batch, time_ms: int, of_key: bytes, element: bytes) -> None:
        """Remove the due time of an element. Arguments as in the earlier call of `note`."""
        batch.delete(self._keys.of_due(time_ms, of_key, element), self.family.handle)

    def due(self, until_ms: int, has_changed: HasChanged) -> Iterator[Due]:
        """Yield the unchanged elements due at `until_ms` or before, the earliest first."""
        groups = [group for group, time_ms in self._earliest.items() if time_ms <= until_ms]
        of_groups = [self._of_key_group(group, until_ms, has_changed) for group in groups]
        return heapq.merge(*of_groups, key=lambda due: due[0])

    def next_ms(self, before_ms: int | None, has_changed: HasChanged) -> int | None:
        """Return the earliest due time of an unchanged element, or `before_ms` if this is earlier;
        None if there is neither."""
        next_ms = before_ms
        for key_group, time_ms in sorted(self._earliest.items(), key=lambda item: item[1]):
            if time_ms == _LAST_MS or (next_ms is not None and time_ms >= next_ms):
                break
            until_ms = _LAST_MS if next_ms is None else next_ms
            first = next(self._of_key_group(key_group, until_ms, has_changed), None)
            if first is not None:
                next_ms = first[0]
        return next_ms

    def _of_key_group(
        self, key_group: int, until_ms: int, has_changed: HasChanged
    ) -> Iterator[Due]:
        start = of_key_group(key_group)
        end = of_key_group(key_group + 1)
        if until_ms < _LAST_MS:
            end = start + encode_int(until_ms + 1)
        first = self.family.first(start)
        if first is None or key_group_of(first) != key_group:
            self._earliest[key_group] = _LAST_MS
            return
        self._earliest[key_group] = self._keys.due(first)[0]
        for row, _ in self.family.rows(first, end):
            time_ms, key, element = self._keys.due(row)
            if not has_changed(key, element):
                yield time_ms, (key_group, key, element)
