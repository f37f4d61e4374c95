"""One map per key group: made when needed, snapshotted together, released one by one."""

from __future__ import annotations

import pytest

from checkpoint_store.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTable

Table = CopyOnWriteStateTable[str, None, list[int]]


def table() -> Table:
    filled: Table = CopyOnWriteStateTable(KeyGroupRange(2, 5), list)
    filled.map_for(4).put("d", None, [4])
    filled.map_for(2).put("b", None, [2])
    return filled


def test_entries_come_by_key_group() -> None:
    assert list(table()) == [(2, "b", None, [2]), (4, "d", None, [4])]
    assert len(table()) == 2


@pytest.mark.parametrize("key_group", [1, 6, -1])
def test_a_key_group_outside_of_the_range_is_refused(key_group: int) -> None:
    with pytest.raises(ValueError, match=f"key group {key_group} is not in"):
        table().map_for(key_group)


def test_a_snapshot_costs_only_the_maps_that_exist_and_keeps_their_entries() -> None:
    filled = table()
    snapshot = filled.snapshot()
    filled.map_for(2).put("b", None, [0])
    filled.map_for(3).put("c", None, [3])
    found = [(group, list(entries)) for group, entries in snapshot.key_group_snapshots()]
    assert found == [(2, [("b", None, [2])]), (4, [("d", None, [4])])]
    assert len(snapshot) == 2


def test_maps_are_released_one_by_one_and_the_rest_at_once() -> None:
    filled = table()
    snapshot = filled.snapshot()
    _, first = next(snapshot.key_group_snapshots())
    first.release()
    assert filled.map_for(2).snapshot_versions == set()
    assert filled.map_for(4).snapshot_versions == {1}
    snapshot.release_all()
    snapshot.release_all()
    assert filled.map_for(4).snapshot_versions == set()
    filled.check_invariants()
