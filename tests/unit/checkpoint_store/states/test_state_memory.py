"""A reader that may keep states in memory reads only the missing files."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.known_states import KnownStates, StatePart
from checkpoint_store.states.state_memory import StateMemory
from tests.support.operators.fake_state_history import FakeStateHistory
from tests.unit.checkpoint_store.test_state_reader import (
    SHAPE,
    changes,
    gone,
    history_of,
    put,
    schema_json,
    state,
)

HISTORY = (
    [put(1, "a", 1), put(2, "b", 2), put(3, "c", 3)],
    [put(2, "b", 22), gone(3)],
    [put(2, "b", 23), put(4, "d", 4)],
    [gone(4), put(1, "e", 1)],
)


def files_read(history: FakeStateHistory) -> list[str]:
    """Return the names of the files read since the last call, in order."""
    names = sorted(name for name, _ in history.reads)
    history.reads.clear()
    return names


def plain(history: FakeStateHistory, start: int | None, end: int) -> list[tuple[object, ...]]:
    """Return the changes that a reader without memory finds, without counting the reads."""
    rows = changes(StateReader(history), start, end)
    history.reads.clear()
    return rows


def test_the_next_changes_read_only_the_files_that_were_added() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    assert changes(StateReader(history, memory), 10, 11) == plain(history, 10, 11)
    files_read(history)
    second = changes(StateReader(history, memory), 11, 12)
    assert files_read(history) == ["12-2.arrow"]
    third = changes(StateReader(history, memory), 12, 13)
    assert files_read(history) == ["13-3.arrow"]
    assert (second, third) == (plain(history, 11, 12), plain(history, 12, 13))


def test_changes_after_a_snapshot_or_from_nothing_need_no_state() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    assert state(StateReader(history, memory), 11) == state(StateReader(history), 11)
    history.reads.clear()
    rows = changes(StateReader(history, memory), 11, 12)
    assert files_read(history) == ["12-2.arrow"]
    assert rows == plain(history, 11, 12)
    memory = StateMemory()
    changes(StateReader(history, memory), None, 11)
    files_read(history)
    changes(StateReader(history, memory), 11, 13)
    assert files_read(history) == ["12-2.arrow", "13-3.arrow"]


def test_a_state_that_is_behind_catches_up_by_the_changes_in_between() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    changes(StateReader(history, memory), 10, 11)
    files_read(history)
    rows = changes(StateReader(history, memory), 12, 13)
    assert files_read(history) == ["12-2.arrow", "13-3.arrow"]
    assert rows == plain(history, 12, 13)


def test_a_state_is_read_again_when_that_takes_less_than_catching_up() -> None:
    history, memory = history_of(*HISTORY, [put(1, "f", 1)]), StateMemory()
    changes(StateReader(history, memory), 10, 11)
    merged = history.write(13, [put(1, "e", 1), put(2, "b", 23)])
    history.replace(13, merged)
    files_read(history)
    rows = changes(StateReader(history, memory), 13, 14)
    assert files_read(history) == ["13-5.arrow", "14-4.arrow"]
    assert rows == plain(history, 13, 14)


def test_a_version_that_was_written_again_is_another_one() -> None:
    history, memory = history_of(*HISTORY[:2]), StateMemory()
    changes(StateReader(history, memory), 10, 11)
    history.delete(11)
    history.commit(11, [put(1, "other", 9)], 1500)
    history.commit(12, [put(1, "next", 10), gone(3)], 2000)
    files_read(history)
    assert changes(StateReader(history, memory), 11, 12) == plain(history, 11, 12)
    assert ("other", 1, 9, "update_preimage", 12) in changes(StateReader(history, memory), 11, 12)
    # The same change, without files of its own, on top of another past.
    history.delete(12)
    history.delete(11)
    history.delete(10)
    history.commit(10, [put(3, "z", 3)])
    history.commit(11, [])
    history.commit(12, [gone(3)])
    assert changes(StateReader(history, memory), 11, 12) == [("z", 3, 3, "delete", 12)]


def test_a_batch_that_is_read_twice_reads_its_changes_only() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    changes(StateReader(history, memory), 10, 11)
    files_read(history)
    for start, added in ((11, "12-2.arrow"), (12, "13-3.arrow")):
        for _ in range(2):
            rows = changes(StateReader(history, memory), start, start + 1)
            assert files_read(history) == [added]
            assert rows == plain(history, start, start + 1)


def test_two_readers_of_which_one_is_behind_both_read_changes_only() -> None:
    history, memory = history_of(*HISTORY, [put(7, "g", 7)]), StateMemory()
    changes(StateReader(history, memory), 10, 11)
    changes(StateReader(history, memory), 12, 13)
    files_read(history)
    for start, added in ((11, "12-2.arrow"), (13, "14-4.arrow"), (12, "13-3.arrow")):
        rows = changes(StateReader(history, memory), start, start + 1)
        assert files_read(history) == [added]
        assert rows == plain(history, start, start + 1)


def test_a_state_that_was_compacted_is_not_read_again() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    changes(StateReader(history, memory), 10, 12)
    merged = history.write(12, [put(1, "e", 1), put(2, "b", 23)])
    history.replace(12, merged)
    files_read(history)
    changes(StateReader(history, memory), 12, 13)
    assert files_read(history) == ["13-3.arrow"]


def test_a_version_before_what_is_known_is_read_from_its_files() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    changes(StateReader(history, memory), 10, 13)
    assert changes(StateReader(history, memory), 10, 11) == plain(history, 10, 11)
    assert changes(StateReader(history, memory), 11, 13) == plain(history, 11, 13)


def test_changes_of_nothing_keep_what_is_known() -> None:
    history, memory = history_of(*HISTORY, []), StateMemory()
    changes(StateReader(history, memory), 12, 13)
    files_read(history)
    some = KeyGroupRange(1, 1)
    assert changes(StateReader(history, memory), 13, 14) == []
    assert changes(StateReader(history, memory), 13, 14, key_groups=some) == []
    assert set(files_read(history)) <= {"14-4.arrow"}


def test_key_groups_and_shapes_are_known_apart() -> None:
    history, memory = history_of(*HISTORY), StateMemory()
    low, high = KeyGroupRange(0, 2), KeyGroupRange(3, 7)
    changes(StateReader(history, memory), 10, 11, key_groups=low)
    files_read(history)
    rows = changes(StateReader(history, memory), 11, 13, key_groups=high)
    assert "10-0.arrow" in files_read(history)
    assert rows == [row for row in plain(history, 11, 13) if row[1] in high]
    wider = schema_json(name="string", count="long", more="double")
    history.shape = replace(SHAPE, value_schema_json=wider, columns=("name", "id", "count", "more"))
    history.commit(14, [])
    assert changes(StateReader(history, memory), 11, 14) == plain(history, 11, 14)


def test_what_was_not_used_for_longest_goes_first_when_memory_is_full() -> None:
    histories = [replace(history_of(*HISTORY), url=f"memory://{number}") for number in range(3)]
    measured = StateMemory()
    changes(StateReader(histories[0], measured), 10, 12)
    changes(StateReader(histories[2], measured), 10, 11)
    states = KnownStates()
    # Memory for two states, with a margin: a state that is being updated may be slightly larger.
    parts = [StatePart(history.url, SHAPE, KeyGroupRange(0, 7)) for history in histories]
    sizes = [held.nbytes for part in parts if (held := measured.states.get(part, 99))]
    memory = StateMemory(states, int(1.3 * sum(sizes)))
    changes(StateReader(histories[0], memory), 10, 11)
    changes(StateReader(histories[1], memory), 10, 11)
    changes(StateReader(histories[0], memory), 11, 12)
    changes(StateReader(histories[2], memory), 10, 11)
    assert [states.get(part, 99) is not None for part in parts] == [True, False, True]
    assert states.nbytes <= memory.most_bytes
    assert changes(StateReader(histories[1], memory), 11, 12) == plain(histories[1], 11, 12)


def test_a_state_beyond_the_bound_is_not_kept_nor_read_whole_again() -> None:
    history = history_of([put(id, "x" * 100, id) for id in range(8)], [put(1, "b", 2)], [gone(1)])
    memory = StateMemory(most_bytes=300)
    assert changes(StateReader(history, memory), 10, 11) == plain(history, 10, 11)
    assert memory.states.nbytes == 0
    part = StatePart(history.url, SHAPE, KeyGroupRange(0, 7))
    assert not memory.states.fits(part, 2, 300)
    assert changes(StateReader(history, memory), 11, 12) == plain(history, 11, 12)
    assert memory.states.nbytes == 0


def test_many_small_changes_do_not_make_a_state_of_many_parts() -> None:
    history, memory = FakeStateHistory(SHAPE, batch_rows=100), StateMemory()
    history.commit(0, [put(id % 8, "a", id) for id in range(8)])
    part = StatePart(history.url, SHAPE, KeyGroupRange(0, 7))
    for version in range(1, 40):
        history.commit(version, [put(version % 8, "a", version)])
        changes(StateReader(history, memory), version - 1, version)
        held = memory.states.get(part, version)
        assert held is not None
        assert len(held.rows()) <= 5
        assert sum(rows.num_rows for rows in held.rows()) <= 16
        held.rows()[0].validate(full=True)
    assert isinstance(pa.concat_tables(held.rows()), pa.Table)
