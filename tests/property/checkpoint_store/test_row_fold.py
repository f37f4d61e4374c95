"""Folding rows gives the states and changes of a dict that applies the rows in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.states.row_fold import (
    FoldRules,
    are_of_keys,
    distinct_keys,
    fold_changes,
    fold_state,
    fold_upserts,
)

FoldedKey = tuple[Any, ...]
Values = tuple[Any, ...]
# A version, a key, the values or None for a delete, and a sequence.
Row = tuple[int, FoldedKey, Values | None, int]

NAN = math.nan
KEYS = {"number": pa.int64(), "ratio": pa.float64(), "text": pa.string()}
VALUES = {
    "count": pa.int32(),
    "share": pa.float64(),
    "tags": pa.list_(pa.string()),
    "nested": pa.struct([("x", pa.int8()), ("ys", pa.list_(pa.float32()))]),
    "map": pa.map_(pa.string(), pa.int16()),
    "list_value": pa.list_(pa.struct([("x", pa.float64())])),
    "map_value": pa.map_(
        pa.struct([("k", pa.float64()), ("path", pa.list_(pa.int8()))]),
        pa.struct([("v", pa.int8())]),
    ),
    "span": pa.month_day_nano_interval(),
    "void": pa.null(),
}
NAMES = (*KEYS, *VALUES)

keys = st.tuples(
    st.sampled_from([None, 0, 1]), st.sampled_from([None, NAN, 1.5]), st.sampled_from([None, "a"])
)
structs = st.tuples(
    st.sampled_from([None, 1]),
    st.none() | st.lists(st.sampled_from([None, NAN, 2.0]), max_size=2),
).map(lambda fields: dict(zip(("x", "ys"), fields, strict=True)))
entries = st.tuples(
    st.builds(
        lambda k, path: {"k": k, "path": path},
        st.sampled_from([None, NAN]),
        st.sampled_from([None, [], [1]]),
    ),
    st.sampled_from([{"v": None}, {"v": 1}]),
)
values = st.tuples(
    st.none() | st.integers(0, 2),
    st.sampled_from([None, NAN, 0.0, 1.0]),
    st.none() | st.lists(st.sampled_from([None, "a", "b"]), max_size=2),
    st.none() | structs,
    st.none() | st.lists(st.tuples(st.sampled_from("kl"), st.sampled_from([None, 7])), max_size=2),
    st.none() | st.lists(st.sampled_from([{"x": None}, {"x": NAN}, {"x": 2.0}]), max_size=2),
    st.none() | st.lists(entries, max_size=2, unique_by=lambda entry: repr(entry[0])),
    st.sampled_from([None, pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([1, 2, 4])]),
    st.none(),
)
batches = st.lists(
    st.lists(st.tuples(keys, st.none() | values, st.integers(0, 4)), max_size=8), max_size=6
)
rules = st.builds(
    FoldRules, st.just(tuple(KEYS)), st.just(tuple(VALUES)), st.booleans(), st.booleans()
)


@dataclass
class Model:
    """A state, the greatest sequence of each key, and the changes of the last version."""

    rules: FoldRules
    state: dict[FoldedKey, Values] = field(default_factory=dict)
    sequences: dict[FoldedKey, int] = field(default_factory=dict)

    def apply(self, key: FoldedKey, values: Values | None, sequence: int) -> None:
        if self.rules.sequenced and sequence < self.sequences.get(key, sequence):
            return
        self.sequences[key] = sequence
        if values is None:
            self.state.pop(key, None)
            return
        if self.rules.ignores_nulls and key in self.state:
            old = self.state[key]
            values = tuple(o if v is None else v for o, v in zip(old, values, strict=True))
        self.state[key] = values

    def changes(self, version: int, rows: Iterable[Row]) -> list[FoldedKey]:
        """Apply the rows of a version, and return the changes with their kind and version, in the
        order of the last rows of keys."""
        before, order = dict(self.state), dict[FoldedKey, None]()
        for _, key, values, sequence in rows:
            self.apply(key, values, sequence)
            order.pop(key, None)
            order[key] = None
        changed = []
        for key in order:
            old, new = before.get(key), self.state.get(key)
            if in_order_of_keys(old) == in_order_of_keys(new):
                continue
            if old is not None:
                kind = "delete" if new is None else "update_preimage"
                changed.append((*key, *old, kind, version))
            if new is not None:
                kind = "insert" if old is None else "update_postimage"
                changed.append((*key, *new, kind, version))
        return changed


def in_order_of_keys(values: Values | None) -> str:
    """The values as text, in which maps with equal entries are equal."""
    if values is None:
        return repr(values)
    places = [place for place, kind in enumerate(VALUES.values()) if pa.types.is_map(kind)]
    return repr(
        [
            sorted(value, key=lambda entry: repr(entry[0])) if value and place in places else value
            for place, value in enumerate(values)
        ]
    )


def numbered(history: Sequence[Sequence[tuple[FoldedKey, Values | None, int]]]) -> list[Row]:
    """The rows of versions 0, 1 … in one list."""
    return [(version, *row) for version, batch in enumerate(history) for row in batch]


def table(rows: Sequence[Row], rules: FoldRules, versions: bool = False) -> pa.Table:
    """Build a table of the rows in chunks of three."""
    nothing = (None,) * len(rules.value_names)
    columns = [
        *([row[1][place] for row in rows] for place in range(len(rules.key_names))),
        *([(row[2] or nothing)[place] for row in rows] for place in range(len(rules.value_names))),
    ]
    types = {**KEYS, **VALUES}
    names = [*rules.key_names, *rules.value_names]
    arrays: list[Any] = [
        pa.array(column, types[name]) for name, column in zip(names, columns, strict=True)
    ]
    arrays.append(pa.array(["delete" if row[2] is None else "put" for row in rows], pa.string()))
    names.append("_op")
    if rules.sequenced:
        arrays.append(pa.array([row[3] for row in rows], pa.int16()))
        names.append("_sequence")
    if versions:
        arrays.append(pa.array([row[0] for row in rows], pa.int64()))
        names.append("_commit_version")
    whole = pa.Table.from_arrays(arrays, names)
    return pa.concat_tables(
        [whole[start : start + 3] for start in range(0, len(rows), 3)] or [whole]
    )


def tuples(rows: pa.Table) -> list[FoldedKey]:
    rows.validate(full=True)
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def shown(rows: Iterable[FoldedKey]) -> list[str]:
    """The rows as text, in which NaN equals NaN."""
    return [repr(row) for row in rows]


def contents(state: dict[FoldedKey, Values]) -> list[str]:
    return sorted(shown((*key, *values) for key, values in state.items()))


@given(batches, rules)
def test_a_fold_is_what_is_left_after_all_rows(history: Any, rules: FoldRules) -> None:
    rows, model = numbered(history), Model(rules)
    for _, *row in rows:
        model.apply(*row)
    folded = fold_state(table(rows, rules), rules)
    assert folded.column_names == list(NAMES)
    assert sorted(shown(tuples(folded))) == contents(model.state)


@given(batches, rules, st.integers(0, 40))
def test_a_fold_with_tombstones_stands_for_the_rows_it_was_made_of(
    history: Any, rules: FoldRules, place: int
) -> None:
    rows = numbered(history)
    whole = table(rows, rules)
    folded = fold_state(table(rows[:place], rules), rules, keep_tombstones=True)
    assert folded.schema == whole.schema
    assert folded.num_rows == len({repr(key) for _, key, _, _ in rows[:place]})
    again = fold_state(pa.concat_tables([folded, table(rows[place:], rules)]), rules)
    assert sorted(shown(tuples(again))) == sorted(shown(tuples(fold_state(whole, rules))))


@given(batches, rules, st.integers(0, 6), st.booleans())
def test_changes_are_the_net_result_of_each_version(
    history: Any, rules: FoldRules, start: int, folded: bool
) -> None:
    rows, model = numbered(history), Model(rules)
    base = [row for row in rows if row[0] < start]
    for _, *row in base:
        model.apply(*row)
    changed = [row for row in rows if row[0] >= start]
    expected = []
    for version in range(start, len(history)):
        expected += model.changes(version, (row for row in rows if row[0] == version))
    before = table(base, rules)
    if folded:
        before = fold_state(before, rules, keep_tombstones=True)
    tables = before, table(changed, rules, versions=True)
    made = fold_changes(*tables, rules)
    assert made.column_names == [*NAMES, "_change_type", "_commit_version"]
    assert shown(tuples(made)) == shown(expected)
    some = tuples(fold_changes(*tables, rules, ["share", "text"]))
    wanted = made.select(["text", "share", "_change_type", "_commit_version"])
    assert shown(some) == shown(tuples(wanted))


@given(batches)
def test_upserts_say_what_a_version_left_of_the_keys_that_it_wrote(history: Any) -> None:
    rules = FoldRules(tuple(KEYS), tuple(VALUES))
    rows = numbered(history)
    left: dict[str, tuple[FoldedKey, Values | None]] = {}
    for _, key, values, _ in rows:
        left.pop(repr(key), None)
        left[repr(key)] = (key, values)
    expected = [
        (*key, *(values or (None,) * len(VALUES)), "update_postimage" if values else "delete")
        for key, values in left.values()
    ]
    made = fold_upserts(table(rows, rules), rules)
    assert made.column_names == [*NAMES, "_change_type"]
    assert shown(tuples(made)) == shown(expected)


@given(batches, rules, st.integers(0, 6))
def test_changes_need_no_more_of_the_base_than_the_keys_that_have_rows(
    history: Any, rules: FoldRules, start: int
) -> None:
    rows = numbered(history)
    base = table([row for row in rows if row[0] < start], rules)
    changed = table([row for row in rows if row[0] >= start], rules, versions=True)
    keys = distinct_keys(changed, rules.key_names)
    wanted = {repr(row[1]) for row in rows if row[0] >= start}
    assert sorted(repr(row[:-1]) for row in tuples(keys)) == sorted(wanted)
    restricted = base.filter(are_of_keys(base, keys, rules.key_names))
    assert {repr(row[: len(KEYS)]) for row in tuples(restricted)} <= wanted
    assert shown(tuples(fold_changes(restricted, changed, rules))) == shown(
        tuples(fold_changes(base, changed, rules))
    )


@pytest.mark.parametrize("sequenced", [False, True])
@pytest.mark.parametrize("ignores_nulls", [False, True])
def test_a_state_without_keys_has_one_row_at_most(sequenced: bool, ignores_nulls: bool) -> None:
    rules = FoldRules((), ("count", "share"), sequenced, ignores_nulls)
    rows: list[Row] = [(0, (), (1, 2.0), 0), (1, (), None, 1), (2, (), (3, None), 2)]
    assert tuples(fold_state(table(rows, rules), rules)) == [(3, None)]
    assert tuples(fold_state(table(rows[:2], rules), rules)) == []
    changes = fold_changes(table(rows[:1], rules), table(rows[1:], rules, versions=True), rules)
    assert tuples(changes) == [(1, 2.0, "delete", 1), (3, None, "insert", 2)]


@pytest.mark.parametrize("ignores_nulls", [False, True])
def test_a_table_of_keys_alone_has_inserts_and_deletes(ignores_nulls: bool) -> None:
    rules = FoldRules(("number", "text"), (), ignores_nulls=ignores_nulls)
    a, b = (1, "a"), (1, None)
    rows: list[Row] = [(0, a, (), 0), (1, a, (), 0), (1, b, (), 0), (2, a, None, 0)]
    assert tuples(fold_state(table(rows, rules), rules)) == [b]
    changes = fold_changes(table([], rules), table(rows, rules, versions=True), rules)
    assert tuples(changes) == [(*a, "insert", 0), (*b, "insert", 1), (*a, "delete", 2)]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("count", 1, 2),
        ("count", 1, None),
        ("share", NAN, 1.0),
        ("tags", ["a", "b"], ["a", "a"]),
        ("tags", ["a"], ["a", None]),
        ("tags", [], None),
        ("nested", {"x": None, "ys": None}, None),
        ("nested", {"x": 1, "ys": [1.0, NAN]}, {"x": 1, "ys": [1.0, 2.0]}),
        ("nested", {"x": 1, "ys": [1.0]}, {"x": 2, "ys": [1.0]}),
        ("map", [("k", 1), ("l", 2)], [("k", 1), ("l", 3)]),
        ("map", [("k", 1)], [("l", 1)]),
        ("span", pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([1, 2, 4])),
    ],
)
def test_values_of_any_type_are_told_apart(name: str, old: Any, new: Any) -> None:
    """The changed key lies between keys with constant values, to detect mixed-up positions."""
    rules = FoldRules(("number",), (name,))
    base: list[Row] = [(0, (key,), (old,), 0) for key in range(3)]
    changed: list[Row] = [(1, (key,), (new if key == 1 else old,), 0) for key in range(3)]
    folded = fold_changes(table(base, rules), table(changed, rules, versions=True), rules)
    assert shown(tuples(folded)) == shown(
        [(1, old, "update_preimage", 1), (1, new, "update_postimage", 1)]
    )


def test_rows_stay_in_the_order_in_which_they_won() -> None:
    rules = FoldRules(("number",), ("count",))
    rows: list[Row] = [(0, (3,), (1,), 0), (0, (1,), (1,), 0), (0, (2,), (1,), 0)]
    rows.append((0, (3,), (2,), 0))
    for ignores_nulls in (False, True):
        upserts = FoldRules(("number",), ("count",), ignores_nulls=ignores_nulls)
        assert tuples(fold_state(table(rows, rules), upserts)) == [(1, 1), (2, 1), (3, 2)]
