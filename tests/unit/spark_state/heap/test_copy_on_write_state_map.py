"""The copy-on-write map shares entries with its snapshots and copies only changed entries."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable

import pytest

from spark_state.heap.copy_on_write_state_map import CopyOnWriteStateMap
from spark_state.heap.copy_on_write_state_map_snapshot import BUCKETS_AT_ONCE
from tests.support.operators.state_map_chains import (
    Map,
    Snapshot,
    State,
    all_entries,
    bucket,
    changed_state,
    content,
    key,
    map_of_buckets,
    map_of_chain,
    names,
    owned,
)
from tests.support.operators.state_map_model import ChosenHashKey, check_map


def test_the_worked_example_copies_what_it_says_at_each_step() -> None:
    k13, k23, k42 = key(13), key(23, 42), key(42)
    entries: Map = CopyOnWriteStateMap(list)
    entries.put(k23, [3])
    entries.put(k42, [7])
    old42, old23 = bucket(entries, 42)
    assert (entries.state_map_version, entries.highest_required_snapshot_version) == (0, 0)
    assert [(entry.entry_version, entry.state_version) for entry in (old42, old23)] == [
        (0, 0),
        (0, 0),
    ]

    first = entries.snapshot()
    assert (first.version, entries.state_map_version) == (1, 1)
    assert (entries.snapshot_versions, entries.highest_required_snapshot_version) == ({1}, 1)

    entries.put(k13, [2])
    (new13,) = bucket(entries, 13)
    assert (new13.entry_version, new13.state_version) == (1, 1)
    assert bucket(entries, 42) == [old42, old23]

    state23 = owned(entries, k23)
    new42, new23 = bucket(entries, 42)
    assert new42 is not old42
    assert new23 is not old23
    assert (new42.entry_version, new42.state_version) == (1, 0)
    assert (new23.entry_version, new23.state_version) == (1, 1)
    assert new42.state is old42.state
    assert state23 is new23.state
    assert state23 is not old23.state
    assert state23 == old23.state == [3]

    state42 = owned(entries, k42)
    assert bucket(entries, 42) == [new42, new23]
    assert (new42.entry_version, new42.state_version) == (1, 1)
    assert state42 is not old42.state
    assert content(first) == {23: [3], 42: [7]}

    first.release()
    assert (entries.snapshot_versions, entries.highest_required_snapshot_version) == (set(), 0)

    second = entries.snapshot()
    assert (second.version, entries.state_map_version) == (2, 2)
    assert entries.highest_required_snapshot_version == 2

    entries.remove(k23)
    (newer42,) = bucket(entries, 42)
    assert newer42 is not new42
    assert (newer42.entry_version, newer42.state_version) == (2, 1)
    assert newer42.state is new42.state
    assert new42.next is new23
    assert bucket(entries, 13) == [new13]
    assert content(second) == {13: [2], 23: [3], 42: [7]}
    assert content(entries) == {13: [2], 42: [7]}

    second.release()
    assert (entries.snapshot_versions, entries.highest_required_snapshot_version) == (set(), 0)


def test_an_owned_state_is_the_same_object_until_the_next_snapshot() -> None:
    put = [1]
    entries: Map = CopyOnWriteStateMap(list)
    entries.put(key(1), put)
    entries.snapshot().release()
    assert owned(entries, key(1)) is put
    snapshot = entries.snapshot()
    copied = owned(entries, key(1))
    assert copied is not put
    assert copied == put
    assert owned(entries, key(1)) is copied
    entries.put(key(1), put)
    assert owned(entries, key(1)) is put, "it was put under the snapshot"
    snapshot.release()
    assert owned(entries, key(1)) is put


def test_keys_stay_the_objects_that_were_put_first() -> None:
    keys = [key(name, 5) for name in range(6)]
    entries: Map = CopyOnWriteStateMap(list, 1)
    for stored in keys:
        entries.put(stored, [stored.name])
    entries.snapshot()
    for stored in keys:
        entries.put(key(stored.name, 5), [0])
    assert {id(stored) for stored, _ in entries} == set(map(id, keys))


def test_a_snapshot_shares_every_entry_and_copies_no_state() -> None:
    def refuse(state: State) -> State:
        raise AssertionError(f"copied {state}")

    entries: Map = CopyOnWriteStateMap(refuse)
    for name in range(50):
        entries.put(key(name, name % 7), [name])
    before = all_entries(entries)
    snapshot = entries.snapshot()
    assert all_entries(entries) == before
    assert {stored.name: id(state) for stored, state in snapshot} == {
        name: id(entry.state) for name, entry in before.items()
    }


@pytest.mark.parametrize("change", [owned, lambda entries, key: entries.put(key, [9])])
def test_the_entry_and_the_shared_ones_before_it_are_copied_and_no_other(
    change: Callable[[Map, ChosenHashKey], object],
) -> None:
    entries = map_of_chain(1, 2, 3, 4)
    shared = bucket(entries, 5)
    snapshot = entries.snapshot()
    entries.put(key(0, 5), [0])
    (new,) = bucket(entries, 5)[:1]
    change(entries, key(3, 5))
    after = bucket(entries, 5)
    assert names(after) == [0, 1, 2, 3, 4]
    assert after[0] is new
    assert [entry in shared for entry in after] == [False, False, False, False, True]
    assert [entry.entry_version for entry in after] == [1, 1, 1, 1, 0]
    assert [entry.state_version for entry in after] == [1, 0, 0, 1, 0]
    assert after[1].state is shared[0].state
    assert content(snapshot) == {1: [1], 2: [2], 3: [3], 4: [4]}

    change(entries, key(3, 5))
    assert bucket(entries, 5) == after


@pytest.mark.parametrize("removed", [1, 3, 4])
def test_a_removal_copies_the_shared_entries_before_it_and_no_state(removed: int) -> None:
    entries = map_of_chain(1, 2, 3, 4)
    shared = bucket(entries, 5)
    snapshot = entries.snapshot()
    entries.remove(key(removed, 5))
    after = bucket(entries, 5)
    assert names([entry for entry in after if entry not in shared]) == [*range(1, removed)]
    left = [entry.state for entry in shared if entry.key.name != removed]
    assert all(entry.state is state for entry, state in zip(after, left, strict=True))
    assert content(snapshot) == {name: [name] for name in (1, 2, 3, 4)}
    snapshot.release()
    entries.remove(key(2, 5))
    assert bucket(entries, 5) == [entry for entry in after if entry.key.name != 2]


def test_an_entry_that_only_a_released_snapshot_shared_is_changed_in_place() -> None:
    entries = map_of_chain(1)
    older = entries.snapshot()
    entries.put(key(1, 5), [2])
    entries.snapshot().release()
    (private,) = bucket(entries, 5)
    changed_state(entries, key(1, 5))
    assert bucket(entries, 5) == [private]
    assert content(older) == {1: [1]}


def test_releasing_a_snapshot_again_does_nothing() -> None:
    entries = map_of_chain(1)
    snapshot, other = entries.snapshot(), entries.snapshot()
    released_before = snapshot.released
    for _ in range(2):
        snapshot.release()
        assert (released_before, snapshot.released) == (False, True)
        assert entries.snapshot_versions == {other.version}


def test_a_snapshot_of_more_buckets_than_are_copied_at_once_is_whole() -> None:
    size = 2 * BUCKETS_AT_ONCE + 100
    entries = map_of_buckets(size, capacity=4 * BUCKETS_AT_ONCE)
    snapshot = entries.snapshot()
    for name in range(size):
        entries.remove(key(name))
    assert content(snapshot) == {name: [name] for name in range(size)}
    assert all(snapshot.get(key(name)) == [name] for name in range(size))
    snapshot.release()
    assert snapshot._buckets == []


def test_a_released_snapshot_is_not_read_on() -> None:
    snapshot = map_of_chain(1, 2).snapshot()
    reader = iter(snapshot)
    next(reader)
    snapshot.release()
    for rest in (reader, iter(snapshot)):
        with pytest.raises(RuntimeError, match="snapshot 1 was released"):
            next(rest)
    with pytest.raises(RuntimeError, match="snapshot 1 was released"):
        snapshot.get(key(1, 5))
    assert len(snapshot) == 2


def test_a_writer_reads_and_releases_a_snapshot_while_the_owner_changes_the_map() -> None:
    chosen = random.Random(11)
    keys = [key(name, chosen.getrandbits(60)) for name in range(3000)]
    entries: Map = CopyOnWriteStateMap(list, 16)
    written: dict[int, State] = {}
    changes_while_writing = []

    def write(snapshot: Snapshot) -> None:
        written.update({stored.name: list(state) for stored, state in snapshot})
        snapshot.release()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for epoch in range(20):
            for added in keys[: 150 * (epoch + 1)]:
                entries.put(added, [added.name, epoch])
            expected = content(entries)
            written.clear()
            writer = threading.Thread(target=write, args=(entries.snapshot(),))
            writer.start()
            changes = 0
            while writer.is_alive():
                changed_state(entries, keys[changes % 150])
                entries.put(keys[(changes * 7) % 3000], [epoch])
                entries.remove(keys[(changes * 11) % 3000 // 2 + 1500])
                changes += 1
            writer.join()
            changes_while_writing.append(changes)
            assert written == expected
            check_map(entries)
    finally:
        sys.setswitchinterval(interval)
    assert sum(changes_while_writing) > 100
    assert entries.snapshot_versions == set()
