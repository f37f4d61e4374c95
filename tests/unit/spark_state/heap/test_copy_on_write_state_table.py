"""A table has one map per key group, made on demand, and takes snapshots of all maps together."""

from __future__ import annotations

import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTable

State = list[int]
Table = CopyOnWriteStateTable[str, State]
ALL = KeyGroupRange(0, 127)


def table_with_two_groups() -> Table:
    table: Table = CopyOnWriteStateTable(KeyGroupRange(2, 5))
    table.map_for(4).put("d", [4])
    table.map_for(2).put("b", [2])
    return table


def test_entries_come_in_the_order_of_their_key_groups() -> None:
    table = table_with_two_groups()
    assert list(table) == [(2, "b", [2]), (4, "d", [4])]
    assert len(table) == 2


@pytest.mark.parametrize("key_group", [1, 6, -1])
def test_a_key_group_outside_of_the_range_is_refused(key_group: int) -> None:
    with pytest.raises(ValueError, match=rf"key group {key_group} is not in .*start=2, end=5"):
        table_with_two_groups().map_for(key_group)
    assert [len(table_with_two_groups().map_for(end)) for end in (2, 5)] == [1, 0]


def test_a_snapshot_of_some_key_groups_leaves_the_other_maps_alone() -> None:
    table = table_with_two_groups()
    assert {*table.snapshot(ALL)} == {2, 4}, "the maps that exist"
    table = table_with_two_groups()
    snapshot = table.snapshot(KeyGroupRange(3, 9))
    assert [*snapshot] == [4]
    assert table.map_for(2).snapshot_versions == set()


def test_each_map_is_released_when_its_key_group_is_written() -> None:
    table = table_with_two_groups()
    snapshot, other = table.snapshot(ALL), table.snapshot(ALL)
    snapshot[2].release()
    assert [table.map_for(group).snapshot_versions for group in (2, 4)] == [{2}, {1, 2}]
    assert [*other[2], *other[4]] == [("b", [2]), ("d", [4])]
