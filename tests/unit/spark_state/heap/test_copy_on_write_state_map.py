"""The copy-on-write map: identities, versions, chains, and how much one operation moves."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spark_state.heap.copy_on_write_state_map import (
    MIN_TRANSFERRED_PER_INCREMENTAL_REHASH,
    CopyOnWriteStateMap,
    StateMapEntry,
)
from tests.support.chosen_hash import ChosenHash

ListMap = CopyOnWriteStateMap[Any, Any, list[int]]


def list_map(capacity: int = 128) -> ListMap:
    return CopyOnWriteStateMap(list, capacity)


def chain_of(entries: ListMap, code: int) -> list[StateMapEntry[Any, Any, list[int]]]:
    chain = []
    entry = entries.primary_table[code & (len(entries.primary_table) - 1)]
    while entry is not None:
        chain.append(entry)
        entry = entry.next
    return chain


def names_of(entries: ListMap, code: int) -> list[int]:
    return [entry.key.name for entry in chain_of(entries, code)]


def test_the_worked_example_copies_exactly_what_it_must() -> None:
    code = 7
    k13, k23, k42 = (ChosenHash(name, code) for name in (13, 23, 42))
    entries = list_map()
    entries.put(k23, None, [3])
    entries.put(k42, None, [7])
    assert names_of(entries, code) == [42, 23]
    old42, old23 = chain_of(entries, code)

    first = entries.snapshot()
    assert (first.version, entries.state_map_version) == (1, 1)
    assert entries.highest_required_snapshot_version == 1

    entries.put(k13, None, [2])
    new13, *rest = chain_of(entries, code)
    assert new13.entry_version == new13.state_version == 1
    assert rest[0] is old42
    assert rest[1] is old23

    got = entries.get(k23, None)
    assert got == [3]
    assert got is not old23.state
    same13, new42, new23 = chain_of(entries, code)
    assert same13 is new13
    assert new42 is not old42
    assert new42.state is old42.state
    assert (new42.state_version, new42.entry_version) == (0, 1)
    assert new23 is not old23
    assert (new23.state_version, new23.entry_version) == (1, 1)

    got42 = entries.get(k42, None)
    assert chain_of(entries, code)[1] is new42
    assert got42 == [7]
    assert got42 is not old42.state
    assert new42.state_version == 1

    first.release()
    assert entries.highest_required_snapshot_version == 0

    second = entries.snapshot()
    assert second.version == 2
    entries.remove(k23, None)
    assert names_of(entries, code) == [13, 42]
    assert chain_of(entries, code)[1] is not new42
    assert chain_of(entries, code)[1].state is new42.state
    assert sorted((key.name, state) for key, _, state in second) == [
        (13, [2]),
        (23, [3]),
        (42, [7]),
    ]
    second.release()
    assert entries.highest_required_snapshot_version == 0
    entries.check_invariants()


def test_get_returns_the_same_object_until_the_next_snapshot() -> None:
    entries = list_map()
    state = [1]
    entries.put("a", None, state)
    assert entries.get("a", None) is state
    snapshot = entries.snapshot()
    copied = entries.get("a", None)
    assert copied == state
    assert copied is not state
    assert entries.get("a", None) is copied
    snapshot.release()
    assert entries.get("a", None) is copied


def test_a_put_state_is_the_object_that_was_put_even_under_a_snapshot() -> None:
    entries = list_map()
    entries.put("a", None, [1])
    entries.snapshot()
    state = [2]
    entries.put("a", None, state)
    assert entries.get("a", None) is state


def test_keys_and_namespaces_are_never_copied() -> None:
    entries = list_map()
    key, namespace = ("k",), ("n",)
    entries.put(key, namespace, [1])
    entries.snapshot()
    entries.get(("k",), ("n",))
    ((found_key, found_namespace, _),) = list(entries)
    assert found_key is key
    assert found_namespace is namespace


def test_namespaces_separate_states_of_one_key() -> None:
    entries = list_map()
    entries.put("a", None, [0])
    entries.put("a", 1, [1])
    entries.put("a", 2, [2])
    assert [entries.get("a", namespace) for namespace in (None, 1, 2, 3)] == [[0], [1], [2], None]
    entries.remove("a", 1)
    assert (len(entries), entries.contains("a", 1), entries.contains("a", 2)) == (2, False, True)


def test_the_old_state_is_handed_back_by_put_and_remove() -> None:
    entries = list_map()
    assert entries.put_and_get_old("a", None, [1]) is None
    assert entries.put_and_get_old("a", None, [2]) == [1]
    assert entries.remove_and_get_old("a", None) == [2]
    assert entries.remove_and_get_old("a", None) is None


def test_contains_copies_nothing() -> None:
    entries = list_map()
    entries.put("a", None, [1])
    (entry,) = chain_of(entries, hash("a"))
    entries.snapshot()
    assert entries.contains("a", None)
    assert chain_of(entries, hash("a")) == [entry]
    assert entry.state_version == 0


def test_a_snapshot_released_twice_is_an_error() -> None:
    snapshot = list_map().snapshot()
    snapshot.release()
    with pytest.raises(ValueError, match="snapshot 1 is not open"):
        snapshot.release()


def test_a_released_snapshot_cannot_be_iterated() -> None:
    snapshot = list_map().snapshot()
    snapshot.release()
    with pytest.raises(RuntimeError, match="snapshot 1 was released"):
        list(snapshot)


def test_releasing_the_older_of_two_snapshots_keeps_the_newer_one_intact() -> None:
    entries = list_map()
    entries.put("a", None, [1])
    first = entries.snapshot()
    entries.put("a", None, [2])
    second = entries.snapshot()
    first.release()
    assert entries.highest_required_snapshot_version == 2
    entries.get("a", None).append(9)  # type: ignore[union-attr]
    assert list(second) == [("a", None, [2])]


@pytest.mark.parametrize("change", ["put", "remove"])
def test_iterating_fails_when_entries_come_or_go(change: str) -> None:
    entries = list_map()
    for key in range(3):
        entries.put(key, None, [key])
    iterator = iter(entries)
    next(iterator)
    if change == "put":
        entries.put("new", None, [0])
    else:
        entries.remove(2, None)
    with pytest.raises(RuntimeError, match="changed while it was iterated"):
        next(iterator)


@pytest.mark.parametrize("capacity", [0, -1, 3, 100, 1 << 31])
def test_a_capacity_that_is_no_power_of_two_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"capacity {capacity} is no power of two"):
        list_map(capacity)


def test_growing_begins_above_three_quarters_and_ends_with_twice_the_buckets() -> None:
    entries = list_map(8)
    for key in range(6):
        entries.put(ChosenHash(key, key), None, [key])
    assert not entries.incremental_rehash_table
    entries.put(ChosenHash(6, 6), None, [6])
    assert len(entries.incremental_rehash_table) == 16
    assert entries.rehash_index == 0
    entries.get(ChosenHash(0, 0), None)
    assert entries.rehash_index == 4
    assert entries.incremental_rehash_table_size == 4
    entries.check_invariants()
    entries.get(ChosenHash(0, 0), None)
    assert len(entries.primary_table) == 16
    assert not entries.incremental_rehash_table
    assert sorted(state[0] for _, _, state in entries) == list(range(7))


def test_a_snapshot_in_the_middle_of_a_rehash_holds_every_entry_once() -> None:
    entries = list_map(8)
    for key in range(7):
        entries.put(ChosenHash(key, key * 3), None, [key])
    entries.get(ChosenHash(0, 0), None)
    assert 0 < entries.rehash_index < 8
    snapshot = entries.snapshot()
    for key in range(7):
        entries.get(ChosenHash(key, key * 3), None).append(-1)  # type: ignore[union-attr]
    assert sorted(state for _, _, state in snapshot) == [[key] for key in range(7)]
    assert len(snapshot) == 7


def test_no_operation_moves_more_than_a_few_entries_while_a_million_keys_are_inserted() -> None:
    entries: CopyOnWriteStateMap[int, None, int] = CopyOnWriteStateMap(lambda state: state)
    most = 0
    for key in range(1_000_000):
        moved_before = entries.incremental_rehash_table_size
        rehashing = bool(entries.incremental_rehash_table)
        entries.put(key, None, key)
        if rehashing and entries.incremental_rehash_table:
            most = max(most, entries.incremental_rehash_table_size - moved_before)
    # One entry is the inserted one; keys of this hash fill a bucket with at most one entry each
    # before the rehash ends, so the last bucket cannot overshoot the minimum by more than one.
    assert most >= MIN_TRANSFERRED_PER_INCREMENTAL_REHASH
    assert most <= MIN_TRANSFERRED_PER_INCREMENTAL_REHASH + 2
    assert len(entries) == 1_000_000


def test_a_writer_reads_and_releases_its_snapshot_while_the_owner_changes_the_map() -> None:
    entries = list_map()
    for key in range(5000):
        entries.put(key, None, [key])
    seen: list[list[int]] = []

    def write(snapshot: Any) -> None:
        seen.extend(list(state) for _, _, state in snapshot)
        snapshot.release()

    for _ in range(5):
        expected = sorted(list(state) for _, _, state in entries)
        seen.clear()
        writer = threading.Thread(target=write, args=(entries.snapshot(),))
        writer.start()
        for key in range(0, 5000, 3):
            entries.get(key, None).append(-1)  # type: ignore[union-attr]
            entries.put(-key - 1, None, [key])
            entries.remove(-key - 1, None)
        writer.join()
        assert sorted(seen) == expected
    assert entries.snapshot_versions == set()
    entries.check_invariants()
