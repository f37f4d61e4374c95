"""A heap table of elements that become due agrees with dicts that are copied at every step.

The current key changes only now and then. Meanwhile epochs are sealed, rolled back and undone, and
snapshots are taken.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from spark_state.heap.heap_element_table import HeapElementTable
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


class Numbers(FormWithoutFiles):
    """A form of state with numbers as elements, and with the time when an element is due as its
    value."""

    def deletes(self, states: Any) -> list[bool]:
        return [state is None or state[1] is None for state in states]


class Model(HeapTableModel):
    """A table of elements that become due. Only keys with elements are in the content."""

    def new_table(self) -> HeapElementTable[int, tuple[int]]:
        return HeapElementTable("n", Numbers(), KEY_GROUPS, self.current, lambda _, value: value[0])

    def maps(self) -> Any:
        return self.table._maps._maps

    def follow(self, contents: Contents, key: ModelKey, row: Any) -> None:
        held = contents.setdefault(key, {})
        if row is None:
            held.clear()
        elif row[1] is None:
            held.pop(row[0], None)
        else:
            held[row[0]] = row[1]
        if not held:
            del contents[key]

    def content_of(self, state: Any) -> dict[int, tuple[int]]:
        return dict(self.table.rows_of(state))

    @property
    def of_key(self) -> dict[int, tuple[int]]:
        held: dict[int, tuple[int]] = self.now.get(self.key, {})
        return held

    def put(self, element: int, due_ms: int) -> None:
        self.table.put(element, (due_ms,))
        self.follow(self.now, self.key, (element, (due_ms,)))

    def append(self, due: list[int]) -> None:
        self.table.append([(due_ms,) for due_ms in due])
        appended = [entry for entry in self.table.elements() if entry[0] not in self.of_key]
        # The table may skip numbers, but never uses a number again while the key has elements.
        assert [value for _, value in appended] == [(due_ms,) for due_ms in due]
        assert all(number > max(self.of_key, default=-1) for number, _ in appended)
        for entry in appended:
            self.follow(self.now, self.key, entry)

    def remove(self, element: int) -> None:
        self.table.remove(element)
        self.follow(self.now, self.key, (element, None))

    def get(self, element: int) -> None:
        assert self.table.get(element) == self.of_key.get(element)

    def elements(self) -> None:
        assert self.table.elements() == sorted(self.of_key.items())
        assert self.table.exists() == bool(self.of_key)

    def clear(self) -> None:
        self.table.clear()
        self.follow(self.now, self.key, None)

    def apply(self, number: int, row: tuple[int, int | None] | None) -> None:
        self.roll_back()
        key = (number,)
        changed = row and (row[0], None if row[1] is None else (row[1],))
        self.table.apply(StateEntries("n", Numbers(), [key], [key_group(key)], [changed]))
        self.applied(key, changed)

    def check(self) -> None:
        """Assert that the changelog leads to the content, and that the due times agree."""
        super().check()
        due = sorted(
            (value[0], key, element)
            for key, held in self.now.items()
            for element, value in held.items()
        )
        reported = [(due_ms, key, element) for due_ms, (_, key, element) in self.table.due(3)]
        assert sorted(reported) == [entry for entry in due if entry[0] <= 3]
        assert self.table.next_due_ms() == (due[0][0] if due else None)


keys, elements, times = st.integers(0, 4), st.integers(0, 5), st.integers(0, 5)
steps = st.one_of(
    step("set_key", keys),
    step("put", elements, times),
    step("append", st.lists(times, max_size=3)),
    st.tuples(st.sampled_from(["remove", "get"]), elements),
    st.tuples(st.sampled_from(["elements", "clear"])),
    st.tuples(st.sampled_from(["seal", "seal", "roll_back", "undo", "snapshot", "read"])),
    step("apply", keys, st.none() | st.tuples(elements, st.none() | times)),
)


# Elements that come back after a clear are still those of the snapshot.
BACK: list[ModelStep] = [("put", 0, 1), ("seal",), ("snapshot",), ("clear",), ("roll_back",)]


@examples(130)
@given(st.lists(steps, max_size=40))
@example([*BACK, ("put", 1, 1), ("read",)])
def test_every_change_is_in_the_changelog_and_can_be_undone(script: list[ModelStep]) -> None:
    model = Model()
    for each in script:
        take(model, [each])
        model.check()
