"""A heap table agrees with a dict that is copied at every step, with calls in any order.

The current key changes only now and then. Meanwhile epochs are sealed, rolled back and undone, and
snapshots are taken. A put, get or removal after such a step belongs to the new epoch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.heap.copy_on_write_state_table import CopyOnWriteStateTableSnapshot
from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.current_key import CurrentKey
from spark_state.keyed_state.state_rows import StateEntries

KEY_GROUPS = KeyGroupRange(0, 2)
State = list[int]
Contents = dict[tuple[Any, ...], State]


class Lists:
    """A form of state with lists of numbers, which nobody changes in place."""

    struct_type = pa.struct([])

    def deletes(self, states: Any) -> list[bool]:
        return [state is None for state in states]

    def to_arrow(self, states: Any) -> Any:
        raise AssertionError("nothing is written")

    def from_arrow(self, array: Any) -> Any:
        raise AssertionError("nothing is read")


def entries(contents: dict[tuple[Any, ...], State | None]) -> StateEntries:
    keys = list(contents)
    groups = [key_group(key) for key in keys]
    states = [copy.copy(state) for state in contents.values()]
    return StateEntries("items", Lists(), keys, groups, states)


def key_group(key: tuple[Any, ...]) -> int:
    return sum(key) % 3


calls = st.one_of(
    st.tuples(st.just("key"), st.integers(0, 4)),
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["get", "remove", "put again"])),
    st.tuples(st.sampled_from(["seal", "seal", "rollback", "undo", "snapshot", "read"])),
    st.tuples(st.just("apply"), st.integers(0, 4), st.none() | st.integers(0, 9)),
)


@dataclass
class Script:
    """The table, its expected content, and the contents for a possible undo."""

    current: CurrentKey = field(default_factory=lambda: CurrentKey(0))
    key: tuple[Any, ...] = ()
    now: Contents = field(default_factory=dict)
    base: Contents = field(default_factory=dict)
    sealed_from: Contents | None = None
    snapshots: list[tuple[CopyOnWriteStateTableSnapshot[Any, State], Contents]] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        self.table: HeapStateTable[State] = HeapStateTable(
            "items", Lists(), KEY_GROUPS, self.current
        )

    def run(self, call: tuple[Any, ...]) -> None:
        table = self.table
        match call:
            case "key", number:
                self.key = (number,)
                self.current.key, self.current.key_group = self.key, key_group(self.key)
            case "put", number:
                table.put([number])
                self.now[self.key] = [number]
            case ("put again",) if self.key in self.now:
                table.put(list(self.now[self.key]))
            case ("get",):
                assert table.get() == self.now.get(self.key)
            case ("remove",):
                table.remove()
                self.now.pop(self.key, None)
            case ("seal",):
                table.seal()
                self.sealed_from, self.base = self.base, copy.deepcopy(self.now)
            case ("rollback",):
                self.roll_back()
            case ("undo",) if self.sealed_from is not None:
                self.roll_back()
                table.undo_sealed()
                self.now, self.base = copy.deepcopy(self.sealed_from), self.sealed_from
                self.sealed_from = None
            case ("apply", number, state):
                self.roll_back()
                changed = None if state is None else [state]
                table.apply(entries({(number,): changed}))
                self.now.pop((number,), None)
                if changed is not None:
                    self.now[number,] = changed
                self.base, self.sealed_from = copy.deepcopy(self.now), None
            case ("get all",):
                for number in range(200):
                    self.run(("key", number))
                    self.run(("get",))
            case ("put all", number):
                for key in range(200):
                    self.run(("key", key))
                    self.run(("put", number + key))
            case ("snapshot",):
                self.snapshots.append((table.snapshot(KEY_GROUPS), copy.deepcopy(self.now)))
            case ("read",) if self.snapshots:
                snapshot, held = self.snapshots.pop(0)
                by_group = [snapshot.of_key_group(group) for group in KEY_GROUPS]
                read = [entry for entries in by_group if entries is not None for entry in entries]
                assert dict(read) == held
                snapshot.release_all()

    def roll_back(self) -> None:
        self.table.rollback()
        self.now = copy.deepcopy(self.base)

    def check(self) -> None:
        """Assert that the changelog leads from the base to the table's content, and the undo list
        back."""
        changes = self.table.changes()
        followed = copy.deepcopy(self.base)
        for key, state in zip(changes.keys, changes.states, strict=True):
            followed.pop(key, None)
            if state is not None:
                followed[key] = state
        assert followed == self.now
        assert [key_group(key) for key in changes.keys] == list(changes.key_groups)
        self.table.check_invariants()


@settings(max_examples=400)
@given(st.lists(calls, max_size=40))
def test_every_change_is_in_the_changelog_whether_the_key_is_set_anew_or_not(
    script: list[tuple[Any, ...]],
) -> None:
    model = Script()
    for call in script:
        model.run(call)
        model.check()


KEYS = st.integers(0, 199)
grown_calls = st.one_of(
    st.tuples(st.just("key"), KEYS),
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["get", "remove", "put again", "get all"])),
    st.tuples(st.just("put all"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["seal", "rollback", "undo", "snapshot", "snapshot", "read"])),
    st.tuples(st.just("apply"), KEYS, st.none() | st.integers(0, 9)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(grown_calls, min_size=5, max_size=25))
def test_maps_that_grow_while_snapshots_are_open_lose_no_entry(
    script: list[tuple[Any, ...]],
) -> None:
    model = Script()
    for call in [("put all", 0), ("seal",), *script]:
        model.run(call)
        model.check()


def test_what_was_found_is_forgotten_when_the_map_changes_for_other_keys() -> None:
    for ending, seen in ((("undo",), None), (("apply", 1, 7), [7])):
        model = Script()
        for call in (("key", 1), ("put", 1), ("seal",), ("get",)):
            model.run(call)
        table = model.table
        if ending[0] == "undo":
            table.undo_sealed()
        else:
            table.apply(entries({(1,): [7]}))
        assert table.get() == seen
        table.check_invariants()


def test_a_put_after_a_seal_without_a_new_key_is_in_the_changelog() -> None:
    for end in ("seal", "rollback"):
        model = Script()
        for call in (("key", 1), ("put", 1), (end,), ("put", 2)):
            model.run(call)
        assert list(model.table.changes().keys) == [(1,)]
        model.check()
        model.run(("rollback",))
        assert model.table.get() == ([1] if end == "seal" else None)
