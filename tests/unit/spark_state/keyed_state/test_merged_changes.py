"""Merging changelogs keeps the last change. The contract of backends merges real changelogs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.files.state_file import STATE_METADATA
from spark_state.keyed_state.merged_changes import merged_changes
from spark_state.keyed_state.state_rows import state_columns

NUMBER = pa.struct([("n", pa.int64())])
TIMER = pa.struct([("expiry_ms", pa.int64())])
LIKE_AN_ELEMENT = pa.struct([("list_position", pa.int64()), ("user_map_key", pa.int64())])


def changelog(types: dict[str, tuple[str, Any]], *rows: tuple[str, str, str, Any]) -> pa.Table:
    """Make a changelog of one key group from rows (key, state, op, struct). `types`: column name
    and type of each state."""
    fields = [
        pa.field("key", pa.string()),
        pa.field("_key_group", pa.int32(), nullable=False),
        pa.field("_state", pa.string(), nullable=False),
        pa.field("_op", pa.string(), nullable=False),
    ]
    fields += [
        pa.field(name, of_state, metadata={STATE_METADATA: state})
        for state, (name, of_state) in types.items()
    ]
    columns: list[Any] = [[key for key, *_ in rows], [3] * len(rows)]
    columns += [[state for _, state, *_ in rows], [op for _, _, op, _ in rows]]
    columns += [[held if state == own else None for _, state, _, held in rows] for own in types]
    return pa.table(columns, schema=pa.schema(fields))


def shown(table: pa.Table) -> list[tuple[str, str, str, Any]]:
    """Return a changelog's rows in the form of the arguments of `changelog`."""
    columns = {column.name: column.index for column in state_columns(table.schema)}
    return [
        (row["key"], row["_state"], row["_op"], table.column(columns[row["_state"]])[n].as_py())
        for n, row in enumerate(table.select(["key", "_state", "_op"]).to_pylist())
    ]


def test_timers_are_elements_that_are_never_cleared_together() -> None:
    types = {"timers": ("timers", TIMER)}
    first = changelog(
        types, *(("a", "timers", "put", {"expiry_ms": time_ms}) for time_ms in (10, 20))
    )
    then = changelog(types, ("a", "timers", "delete", {"expiry_ms": 10}))
    merged = merged_changes(["key"], {"timers": "timers"}, [first, then])
    assert shown(merged) == [
        ("a", "timers", "put", {"expiry_ms": 20}),
        ("a", "timers", "delete", {"expiry_ms": 10}),
    ]


def test_a_value_with_fields_that_are_called_like_elements_is_a_value() -> None:
    types = {"place": ("place", LIKE_AN_ELEMENT)}
    values = [{"list_position": n, "user_map_key": -n} for n in range(2)]
    changelogs = [changelog(types, ("a", "place", "put", value)) for value in values]
    merged = merged_changes(["key"], {"place": "value"}, changelogs)
    assert shown(merged) == [("a", "place", "put", values[1])]


def test_files_that_call_the_columns_of_states_otherwise_are_merged_by_state() -> None:
    """A state has the name of a key column, and another state the name of the first state's
    column."""
    first = changelog({"key_": ("key_", NUMBER)}, ("a", "key_", "put", {"n": 1}))
    both = changelog(
        {"key": ("key_", NUMBER), "key_": ("key__", NUMBER)},
        ("a", "key", "put", {"n": 2}),
        ("b", "key_", "put", {"n": 3}),
    )
    merged = merged_changes(["key"], {"key": "value", "key_": "value"}, [first, both])
    assert shown(merged) == [
        ("a", "key_", "put", {"n": 1}),
        ("a", "key", "put", {"n": 2}),
        ("b", "key_", "put", {"n": 3}),
    ]
    assert len(set(merged.column_names)) == len(merged.column_names)


def test_a_key_column_may_be_called_like_anything() -> None:
    table = changelog({"count": ("count", NUMBER)}, ("a", "count", "put", {"n": 1}))
    for name in ("$count", "state count", "other key"):
        renamed = table.rename_columns([name, *table.column_names[1:]])
        merged = merged_changes([name], {"count": "value"}, [renamed, renamed])
        assert merged.column_names == renamed.column_names
        assert merged.to_pylist() == renamed.to_pylist()


def test_a_state_that_nobody_knows_is_not_guessed() -> None:
    unknown = changelog({"count": ("count", NUMBER)}, ("a", "count", "put", {"n": 1}))
    with pytest.raises(KeyError, match="count"):
        merged_changes(["key"], {}, [unknown])
