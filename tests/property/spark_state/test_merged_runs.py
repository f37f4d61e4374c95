"""Merging runs on the local disk gives the same order as one sort of all rows, for every kind of
key."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.input.key_grouping import (
    InputLayout,
    group_by_key,
    grouped,
    sorted_by_key,
)
from spark_state.processor.input.merged_runs import merged_runs
from spark_state.spill_file import SpillFile

_STRUCT = pa.struct([("a", pa.string()), ("b", pa.float64())])
_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole numbers": (pa.int64(), st.integers(-2, 4)),
    "with nulls": (pa.int16(), st.none() | st.integers(0, 3)),
    "text": (pa.string(), st.none() | st.sampled_from(["", "a", "b", "é", "Z"])),
    "text without nulls": (pa.string(), st.sampled_from(["", "a", "b"])),
    "fractions": (
        pa.float64(),
        st.none() | st.sampled_from([0.0, -0.0, float("nan"), float("-inf"), 1.5]),
    ),
    "structs": (
        _STRUCT,
        st.none()
        | st.fixed_dictionaries(
            {"a": st.none() | st.sampled_from("xy"), "b": st.sampled_from([1.0, float("nan")])}
        ),
    ),
    "arrays": (
        pa.list_(pa.int64()),
        st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2),
    ),
}


@st.composite
def inputs(draw: st.DrawFn) -> tuple[pa.Table, InputLayout, KeyColumns]:
    """Draw rows with a key of none to three columns, a number, and a key group."""
    kinds = draw(st.lists(st.sampled_from(sorted(_TYPES)), max_size=3))
    length = draw(st.integers(1, 60))
    columns = {}
    for number, kind in enumerate(kinds):
        kind_type, values = _TYPES[kind]
        drawn = draw(st.lists(values, min_size=length, max_size=length))
        columns[f"key {number}"] = pa.array(drawn, kind_type)
    positions = pa.array(range(length), pa.int64())
    table = pa.table({**columns, "position": positions, "key group": positions.cast(pa.int32())})
    names = tuple(columns)
    types = tuple(_TYPES[kind][0] for kind in kinds)
    return (
        table,
        InputLayout((*names, "position"), tuple(range(len(kinds)))),
        KeyColumns(names, types, ("",) * len(kinds)),
    )


def in_order(keyed: Any) -> list[tuple[Any, ...]]:
    """Each key as (key as text, because NaN differs from NaN; key group; positions)."""
    positions = iter(keyed.rows.column("position").to_pylist())
    return [
        (repr(key), key_group, [next(positions) for _ in range(count)])
        for key, key_group, count in zip(keyed.keys, keyed.key_groups, keyed.counts, strict=True)
    ]


@given(inputs(), st.lists(st.integers(0, 60), max_size=8), st.integers(1, 4_000))
def test_merged_runs_are_the_rows_sorted_at_once(
    given_rows: tuple[pa.Table, InputLayout, KeyColumns], cuts: list[int], part_bytes: int
) -> None:
    table, layout, columns = given_rows
    bounds = sorted({0, table.num_rows, *(cut for cut in cuts if cut < table.num_rows)})
    file = SpillFile(tempfile.gettempdir())
    for start, end in itertools.pairwise(bounds):
        run = sorted_by_key(table.slice(start, end - start), layout)
        file.write(run.schema, [run])
    parts = [
        grouped(part, layout, columns) for part in merged_runs(file.tables(), layout, part_bytes)
    ]
    file.close()
    expected = group_by_key(table, layout, columns)
    assert [key for part in parts for key in in_order(part)] == in_order(expected)


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=400), min_size=1, max_size=12),
    st.booleans(),
    st.integers(1, 20_000),
)
@example([[*range(i * 100, i * 100 + 100)] for i in range(12)], True, 1_600)
@example([[7] * 300] * 5, False, 100)
def test_long_runs_come_in_bounded_parts(
    runs: list[list[int]], one_after_the_other: bool, part_bytes: int
) -> None:
    values = sorted(v for run in runs for v in run) if one_after_the_other else None
    tables, first = [], 0
    for run in runs:
        mine = sorted(run) if values is None else values[first : first + len(run)]
        groups = pa.array([0] * len(run), pa.int32())
        positions = pa.array(range(first, first + len(run)))
        tables.append(pa.table({"k": pa.array(mine), "position": positions, "group": groups}))
        first += len(run)
    layout = InputLayout(("k", "position"), (0,))
    parts = [*merged_runs(tables, layout, part_bytes)]
    rows = [row for part in parts for row in part.select(["k", "position"]).to_pylist()]
    assert rows == sorted(
        (row for table in tables for row in table.select(["k", "position"]).to_pylist()),
        key=lambda row: (row["k"], row["position"]),
    )
    most_bytes = part_bytes + 20 * len(runs)
    for part in parts:
        assert part.nbytes <= most_bytes or len(set(part.column("k").to_pylist())) == 1
    first_and_last = [(part.column("k")[0].as_py(), part.column("k")[-1].as_py()) for part in parts]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(first_and_last))


@given(
    st.lists(st.lists(st.sampled_from([1, 50, 3_000]), max_size=30), min_size=1, max_size=8),
    st.integers(1, 20_000),
)
def test_a_part_takes_its_bytes_and_a_row_of_each_run(
    lengths: list[list[int]], part_bytes: int
) -> None:
    layout = InputLayout(("k", "text"), (0,))
    runs, row_bytes = [], 0
    for number, run in enumerate(lengths):
        texts = ["x" * length for length in run]
        keys = [place * len(lengths) + number for place in range(len(run))]
        groups = pa.array([0] * len(run), pa.int32())
        runs.append(pa.table({"k": pa.array(keys, pa.int64()), "text": texts, "group": groups}))
        # The 32 bytes include two offsets of the text and its null bits.
        row_bytes += max(run, default=0) + 32
    parts = [*merged_runs(runs, layout, part_bytes)]
    keys = [key for part in parts for key in part.column("k").to_pylist()]
    assert keys == sorted(key for run in runs for key in run.column("k").to_pylist())
    for part in parts:
        assert part.nbytes <= part_bytes + row_bytes
