"""Readers with and without states in memory find the same rows, whatever happens to versions.

Versions are added, merged, taken back and written again. One reader keeps states within a changing
bound, and asks for changes between any versions and of any key groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.known_states import KnownStates
from checkpoint_store.states.state_cache import StateCache
from tests.support.operators.fake_state_history import FakeStateHistory, Row
from tests.unit.checkpoint_store.test_state_reader import SHAPE

rows = st.builds(
    lambda id, values, sequence: Row((id,), values, sequence, id % 4),
    st.integers(0, 9),
    st.none()
    | st.fixed_dictionaries({"name": st.sampled_from([None, "a", "b"]), "count": st.just(1)}),
    st.integers(0, 5),
)
batches = st.lists(rows, max_size=5, unique_by=lambda row: row.key)
steps = st.one_of(
    st.tuples(st.just("commit"), batches),
    st.tuples(st.just("commit"), batches),
    st.tuples(st.just("rewrite"), batches),
    st.tuples(st.just("rename"), st.none()),
    st.tuples(
        st.just("read"),
        st.tuples(
            st.integers(0, 20),
            st.integers(0, 20),
            st.sampled_from([(0, 3), (0, 1), (2, 3), (1, 1)]),
            st.sampled_from([1, 1500, 1 << 20]),
        ),
    ),
    st.tuples(st.just("follow"), st.none()),
)


class Readers:
    """A history, a reader with memory, and a reader without memory."""

    def __init__(self, **rules: bool) -> None:
        self.history = FakeStateHistory(replace(SHAPE, **rules), max_parallelism=4)
        self.history.commit(0, [])
        self.states = KnownStates()
        self.followed = 0

    def run(self, step: str, given: Any) -> None:
        newest = self.history.versions()[-1]
        match step:
            case "commit":
                self.history.commit(newest + 1, given)
            case "rewrite" if newest:
                self.history.delete(newest)
                self.history.commit(newest, given)
            case "rename":
                # As a compaction does: other files, the same state.
                version = self.history.at(newest)
                self.history.replace(newest, *version.state, self.history.write(newest, []))
            case "read":
                left, right, groups, most_bytes = given
                start, end = sorted(min(place, newest) for place in (left, right))
                self.check(start, end, KeyGroupRange(*groups), most_bytes)
            case "follow":
                self.check(min(self.followed, newest), newest, KeyGroupRange(0, 3), 1 << 20)
                self.followed = newest

    def check(self, start: int, end: int, key_groups: KeyGroupRange, most_bytes: int) -> None:
        plain = StateReader(self.history)
        memory = StateReader(self.history, StateCache(self.states, most_bytes))
        assert memory.changes(start, end, key_groups).equals(plain.changes(start, end, key_groups))
        remembered, expected = (
            sorted(map(repr, reader.read(end, key_groups).to_pylist()))
            for reader in (memory, plain)
        )
        assert remembered == expected


@pytest.mark.parametrize("ignores_nulls", [False, True], ids=["nulls count", "nulls are ignored"])
@pytest.mark.parametrize("sequenced", [False, True], ids=["plain", "sequenced"])
@given(script=st.lists(steps, min_size=4, max_size=25))
def test_a_reader_that_remembers_finds_what_another_does(
    sequenced: bool, ignores_nulls: bool, script: Sequence[tuple[str, Any]]
) -> None:
    readers = Readers(sequenced=sequenced, ignores_nulls=ignores_nulls)
    for step, given_to_it in script:
        readers.run(step, given_to_it)
    readers.run("follow", None)
