"""A heap table agrees with a dict that is copied at every step, with calls in any order.

The current key changes only now and then. Meanwhile epochs are sealed, rolled back and undone, and
snapshots are taken. A put, get or removal after such a step belongs to the new epoch.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_state.heap.heap_state_table import HeapStateTable
from spark_state.keyed_state.state_rows import StateEntries
from tests.support.examples import examples
from tests.support.operators.heap_table_model import (
    KEY_GROUPS,
    Contents,
    FormWithoutFiles,
    HeapTableModel,
    ModelKey,
    key_group,
)
from tests.support.random_steps import ModelStep, step, take


class Model(HeapTableModel):
    """A table of lists of numbers, which nobody changes in place."""

    def new_table(self) -> HeapStateTable[list[int]]:
        return HeapStateTable("items", FormWithoutFiles(), KEY_GROUPS, self.current)

    def maps(self) -> Any:
        return self.table._entries

    def follow(self, contents: Contents, key: ModelKey, row: Any) -> None:
        contents.pop(key, None)
        if row is not None:
            contents[key] = row

    def put(self, number: int) -> None:
        self.table.put([number])
        self.now[self.key] = [number]

    def put_again(self) -> None:
        if self.key in self.now:
            self.table.put(list(self.now[self.key]))

    def get(self) -> None:
        assert self.table.get() == self.now.get(self.key)

    def remove(self) -> None:
        self.table.remove()
        self.now.pop(self.key, None)

    def apply(self, number: int, state: int | None) -> None:
        self.roll_back()
        key = (number,)
        self.table.apply(row_of(key, None if state is None else [state]))
        self.applied(key, None if state is None else [state])

    def get_all(self) -> None:
        for number in range(200):
            self.set_key(number)
            self.get()

    def put_all(self, number: int) -> None:
        for key in range(200):
            self.set_key(key)
            self.put(number + key)


def row_of(key: ModelKey, state: list[int] | None) -> StateEntries:
    return StateEntries("items", FormWithoutFiles(), [key], [key_group(key)], [state])


numbers = st.integers(0, 9)
some = [
    step("put", numbers),
    st.tuples(st.sampled_from(["get", "remove", "put_again"])),
    st.tuples(st.sampled_from(["seal", "seal", "roll_back", "undo", "snapshot", "read"])),
]


def steps(keys: st.SearchStrategy[int]) -> st.SearchStrategy[ModelStep]:
    return st.one_of(step("set_key", keys), *some, step("apply", keys, st.none() | numbers))


def run(*script: ModelStep) -> Model:
    model = Model()
    for each in script:
        take(model, [each])
        model.check()
    return model


@examples(130)
@given(st.lists(steps(st.integers(0, 4)), max_size=40))
def test_every_change_is_in_the_changelog_whether_the_key_is_set_anew_or_not(
    script: list[ModelStep],
) -> None:
    run(*script)


grown = steps(st.integers(0, 199)) | step("get_all") | step("put_all", numbers) | step("snapshot")


@examples(20)
@given(st.lists(grown, min_size=5, max_size=25))
def test_maps_that_grow_while_snapshots_are_open_lose_no_entry(script: list[ModelStep]) -> None:
    run(("put_all", 0), ("seal",), *script)


def test_what_was_found_is_forgotten_when_the_map_changes_for_other_keys() -> None:
    for is_undone in (True, False):
        table = run(("set_key", 1), ("put", 1), ("seal",), ("get",)).table
        if is_undone:
            table.undo_sealed()
        else:
            table.apply(row_of((1,), [7]))
        assert table.get() == (None if is_undone else [7])


def test_a_put_after_a_seal_without_a_new_key_is_in_the_changelog() -> None:
    for end in ("seal", "roll_back"):
        model = run(("set_key", 1), ("put", 1), (end,), ("put", 2))
        assert list(model.table.changes().keys) == [(1,)]
        take(model, [("roll_back",)])
        assert model.table.get() == ([1] if end == "seal" else None)
