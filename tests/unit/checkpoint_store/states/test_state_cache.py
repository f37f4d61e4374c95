"""A reader that may keep states in memory reads only the missing files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.known_states import KnownStates, StatePart
from checkpoint_store.states.state_cache import StateCache
from tests.support.operators.fake_state_history import FakeStateHistory
from tests.support.tables.table_rows_of import schema_json
from tests.unit.checkpoint_store.test_state_reader import (
    SHAPE,
    changes,
    gone,
    history_of,
    put,
    state,
)

HISTORY = (
    [put(1, "a", 1), put(2, "b", 2), put(3, "c", 3)],
    [put(2, "b", 22), gone(3)],
    [put(2, "b", 23), put(4, "d", 4)],
    [gone(4), put(1, "e", 1)],
)


def files_of_changes(
    history: FakeStateHistory, memory: StateCache, start: int | None, end: int, **wanted: Any
) -> list[str]:
    """Read changes with the memory. Return the names of the files read, in order. The rows are
    those that a reader without memory finds."""
    history.reads.clear()
    rows = changes(StateReader(history, memory), start, end, **wanted)
    names = sorted(name for name, _ in history.reads)
    assert rows == changes(StateReader(history), start, end, **wanted)
    return names


def test_the_next_changes_read_only_the_files_that_were_added() -> None:
    history, memory = history_of(*HISTORY), StateCache()
    files_of_changes(history, memory, 10, 11)
    assert files_of_changes(history, memory, 11, 12) == ["12-2.arrow"]
    assert files_of_changes(history, memory, 12, 13) == ["13-3.arrow"]


def test_changes_after_a_snapshot_or_from_nothing_need_no_state() -> None:
    history, memory = history_of(*HISTORY), StateCache()
    assert state(StateReader(history, memory), 11) == state(StateReader(history), 11)
    assert files_of_changes(history, memory, 11, 12) == ["12-2.arrow"]
    memory = StateCache()
    files_of_changes(history, memory, None, 11)
    assert files_of_changes(history, memory, 11, 13) == ["12-2.arrow", "13-3.arrow"]


def test_a_state_that_is_behind_catches_up_by_the_changes_in_between() -> None:
    history, memory = history_of(*HISTORY), StateCache()
    files_of_changes(history, memory, 10, 11)
    assert files_of_changes(history, memory, 12, 13) == ["12-2.arrow", "13-3.arrow"]


def test_a_state_is_read_again_when_that_takes_less_than_catching_up() -> None:
    history, memory = history_of(*HISTORY, [put(1, "f", 1)]), StateCache()
    files_of_changes(history, memory, 10, 11)
    history.replace(13, history.write(13, [put(1, "e", 1), put(2, "b", 23)]))
    assert files_of_changes(history, memory, 13, 14) == ["13-5.arrow", "14-4.arrow"]


def test_a_batch_that_is_read_twice_reads_its_changes_only() -> None:
    history, memory = history_of(*HISTORY), StateCache()
    files_of_changes(history, memory, 10, 11)
    for start, added in ((11, "12-2.arrow"), (12, "13-3.arrow")):
        for _ in range(2):
            assert files_of_changes(history, memory, start, start + 1) == [added]


def test_two_readers_of_which_one_is_behind_both_read_changes_only() -> None:
    history, memory = history_of(*HISTORY, [put(7, "g", 7)]), StateCache()
    files_of_changes(history, memory, 10, 11)
    files_of_changes(history, memory, 12, 13)
    for start, added in ((11, "12-2.arrow"), (13, "14-4.arrow"), (12, "13-3.arrow")):
        assert files_of_changes(history, memory, start, start + 1) == [added]


def test_a_state_that_was_compacted_is_not_read_again() -> None:
    history, memory = history_of(*HISTORY), StateCache()
    files_of_changes(history, memory, 10, 12)
    history.replace(12, history.write(12, [put(1, "a", 1), put(2, "b", 23), put(4, "d", 4)]))
    assert files_of_changes(history, memory, 12, 13) == ["13-3.arrow"]


def test_changes_of_nothing_keep_what_is_known() -> None:
    history, memory = history_of(*HISTORY, []), StateCache()
    files_of_changes(history, memory, 12, 13)
    for wanted in ({}, {"key_groups": KeyGroupRange(1, 1)}):
        assert set(files_of_changes(history, memory, 13, 14, **wanted)) <= {"14-4.arrow"}


def test_key_groups_and_shapes_are_known_apart() -> None:
    history, memory = history_of(*HISTORY), StateCache()
    files_of_changes(history, memory, 10, 11, key_groups=KeyGroupRange(0, 2))
    assert "10-0.arrow" in files_of_changes(history, memory, 11, 13, key_groups=KeyGroupRange(3, 7))
    wider = schema_json(name="string", count="long", more="double")
    history.shape = replace(SHAPE, value_schema_json=wider, columns=("name", "id", "count", "more"))
    history.commit(14, [])
    files_of_changes(history, memory, 11, 14)


def test_what_was_not_used_for_longest_goes_first_when_memory_is_full() -> None:
    histories = [replace(history_of(*HISTORY), url=f"memory://{number}") for number in range(3)]
    measured = StateCache()
    files_of_changes(histories[0], measured, 10, 12)
    files_of_changes(histories[2], measured, 10, 11)
    states = KnownStates()
    # Memory for two states, with a margin: a state that is being updated may be slightly larger.
    parts = [StatePart(history.url, SHAPE, KeyGroupRange(0, 7)) for history in histories]
    sizes = [held.nbytes for part in parts if (held := measured.states.get(part, 99))]
    memory = StateCache(states, int(1.3 * sum(sizes)))
    for number, start in ((0, 10), (1, 10), (0, 11), (2, 10)):
        files_of_changes(histories[number], memory, start, start + 1)
    assert [states.get(part, 99) is not None for part in parts] == [True, False, True]
    assert states._held() <= memory.most_bytes
    files_of_changes(histories[1], memory, 11, 12)


def test_a_state_beyond_the_bound_is_not_kept_nor_read_whole_again() -> None:
    history = history_of([put(id, "x" * 100, id) for id in range(8)], [put(1, "b", 2)], [gone(1)])
    memory = StateCache(most_bytes=300)
    files_of_changes(history, memory, 10, 11)
    assert memory.states._held() == 0
    assert not memory.states.fits(StatePart(history.url, SHAPE, KeyGroupRange(0, 7)), 2, 300)
    files_of_changes(history, memory, 11, 12)
    assert memory.states._held() == 0


def test_many_small_changes_do_not_make_a_state_of_many_parts() -> None:
    history, memory = FakeStateHistory(SHAPE, batch_rows=100), StateCache()
    history.commit(0, [put(id % 8, "a", id) for id in range(8)])
    part = StatePart(history.url, SHAPE, KeyGroupRange(0, 7))
    for version in range(1, 40):
        history.commit(version, [put(version % 8, "a", version)])
        changes(StateReader(history, memory), version - 1, version)
        held = memory.states.get(part, version)
        assert len(held.rows()) <= 5
        assert sum(rows.num_rows for rows in held.rows()) <= 16
        held.rows()[0].validate(full=True)
    assert pa.concat_tables(held.rows()).num_rows
