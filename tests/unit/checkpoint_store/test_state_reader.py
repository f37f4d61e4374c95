"""A reader of a small history sees the states, changes and times of all versions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.errors import (
    CheckpointStoreError,
    TimestampOutOfRangeError,
    UnknownColumnError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateShape, VersionInfo
from tests.support.operators.fake_state_history import FakeStateHistory, Row
from tests.support.tables.table_rows_of import schema_json

SHAPE = StateShape(
    state="row",
    key_schema_json=schema_json(id="long"),
    value_schema_json=schema_json(name="string", count="integer"),
    columns=("name", "id", "count"),
)


def put(id: int, name: str | None, count: int | None, sequence: int = 0) -> Row:
    """Make a row whose key group equals the key."""
    return Row((id,), {"name": name, "count": count}, sequence, id)


def gone(id: int, sequence: int = 0) -> Row:
    return Row((id,), None, sequence, id)


def history_of(*versions: Sequence[Row], shape: StateShape = SHAPE) -> FakeStateHistory:
    """Make a history with versions 10, 11, …, one second apart, from 1970 on."""
    history = FakeStateHistory(shape)
    for place, rows in enumerate(versions):
        history.commit(10 + place, rows, 1000 * place)
    return history


def three_versions() -> FakeStateHistory:
    return history_of(
        [put(1, "a", 1), put(2, "b", 2), put(3, "c", 3)],
        [put(2, "b", 22), gone(3), put(4, "d", 4)],
        [gone(4), put(5, "e", 5), put(1, "a", 1)],
    )


def rows(table: pa.Table, *left_out: str) -> list[tuple[Any, ...]]:
    table.validate(full=True)
    return [tuple(row.values()) for row in table.drop_columns(list(left_out)).to_pylist()]


def state(reader: StateReader, epoch: int | None = None, **wanted: Any) -> list[tuple[Any, ...]]:
    return sorted(rows(reader.read(epoch, **wanted)), key=lambda row: row[1])


def changes(reader: StateReader, *between: int | None, **wanted: Any) -> list[tuple[Any, ...]]:
    return rows(reader.changes(*between, **wanted), "_commit_timestamp")


def test_columns_come_in_the_order_of_the_users_with_their_types() -> None:
    reader = StateReader(three_versions())
    expected = pa.schema([("name", pa.string()), ("id", pa.int64()), ("count", pa.int32())])
    assert reader.schema() == reader.schema(10) == reader.read().schema == expected
    more = [("_change_type", pa.string()), ("_commit_version", pa.int64())]
    more.append(("_commit_timestamp", pa.timestamp("us", "UTC")))
    assert reader.changes(10).schema == pa.schema([*expected, *more])
    assert reader.changes(12, 12).schema == pa.schema([*expected, *more])


def test_wanted_columns_come_alone_and_in_the_order_that_is_asked_for() -> None:
    reader = StateReader(three_versions())
    table = reader.read(columns=["count", "name"])
    assert table.column_names == ["count", "name"]
    assert sorted(rows(table)) == [(1, "a"), (5, "e"), (22, "b")]
    assert reader.read(columns=["id"]).column_names == ["id"]
    assert reader.read(columns=[]).num_rows == 3


def test_an_unknown_column_is_an_error_that_names_those_called_alike() -> None:
    reader = StateReader(three_versions())
    with pytest.raises(UnknownColumnError, match=r"'cuont': did you mean 'count'\? It has name"):
        reader.read(columns=["id", "cuont"])
    with pytest.raises(UnknownColumnError, match=r"'_state': It has name, id, count$"):
        reader.read(columns=["_state"])


def test_key_groups_limit_what_is_read_and_what_is_found() -> None:
    history = three_versions()
    reader = StateReader(history)
    some = KeyGroupRange(4, 7)
    assert state(reader, key_groups=some) == [("e", 5, 5)]
    assert changes(reader, 10, key_groups=some) == [
        ("d", 4, 4, "insert", 11),
        ("d", 4, 4, "delete", 12),
        ("e", 5, 5, "insert", 12),
    ]
    # Only key groups 1 to 3 of the first file are read.
    assert {name[:2] for name, _ in history.reads} == {"11", "12"}
    assert {key_groups for _, key_groups in history.reads} == {some}


def test_changes_have_the_time_of_their_version() -> None:
    feed = StateReader(three_versions()).changes(10, 12)
    times = dict(zip(feed["_commit_version"].to_pylist(), feed["_commit_timestamp"], strict=True))
    assert {version: time.as_py() for version, time in times.items()} == {
        11: datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        12: datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
    }


def test_changes_between_a_version_and_itself_are_none_and_read_nothing() -> None:
    history = three_versions()
    assert changes(StateReader(history), 12, 12) == []
    assert history.reads == []
    with pytest.raises(ValueError, match="from version 12 to 11: the start is after the end"):
        StateReader(history).changes(12, 11)


def test_changes_without_preimages_read_nothing_but_what_changed() -> None:
    history = three_versions()
    changed = changes(StateReader(history), 10, 12, preimages=False)
    assert changed == [
        ("b", 2, 22, "update_postimage", 11),
        (None, 3, None, "delete", 11),
        ("d", 4, 4, "update_postimage", 11),
        ("a", 1, 1, "update_postimage", 12),
        (None, 4, None, "delete", 12),
        ("e", 5, 5, "update_postimage", 12),
    ]
    assert {name for name, _ in history.reads} == {"11-1.arrow", "12-2.arrow"}


@pytest.mark.parametrize("preimages", [True, False])
def test_wanted_columns_of_changes_are_those_of_all_columns(preimages: bool) -> None:
    reader = StateReader(three_versions())
    everything = reader.changes(10, preimages=preimages)
    for names in (["count", "_change_type"], ["_commit_timestamp", "id"], ["name"], []):
        some = reader.changes(10, preimages=preimages, columns=names)
        assert some == everything.select(names)
    with pytest.raises(UnknownColumnError, match=r"'_op': It has name, id, count, _change_type"):
        reader.changes(10, preimages=preimages, columns=["_op"])


@pytest.mark.parametrize("rule", ["sequenced", "ignores_nulls"])
def test_changes_that_depend_on_what_was_before_have_preimages_anyway(rule: str) -> None:
    shape = replace(SHAPE, **{rule: True})
    history = history_of([put(1, "a", 1, 5)], [put(1, "b", None, 6)], shape=shape)
    reader = StateReader(history)
    assert changes(reader, 10, preimages=False) == changes(reader, 10)


def test_info_is_of_the_newest_version_or_of_the_one_asked_for() -> None:
    reader = StateReader(three_versions())
    assert reader.info() == VersionInfo(12, 2000)
    assert reader.info(11) == VersionInfo(11, 1000)
    with pytest.raises(VersionNotRetainedError, match="version 9"):
        reader.info(9)


def test_key_groups_of_a_sequenced_table_may_have_no_files() -> None:
    history = history_of([put(1, "a", 1)], [gone(1, 1)], shape=replace(SHAPE, sequenced=True))
    reader = StateReader(history)
    nothing = KeyGroupRange(6, 7)
    assert state(reader, key_groups=nothing) == []
    assert changes(reader, 10, key_groups=nothing) == []
    assert history.reads == []


def test_older_files_lack_newer_columns_and_have_narrower_types() -> None:
    history = history_of([put(1, "a", 1), put(2, "b", 2)])
    history.shape = replace(
        SHAPE,
        value_schema_json=schema_json(name="string", count="long", more="double"),
        columns=("name", "id", "count", "more"),
    )
    history.commit(11, [Row((2,), {"name": "b", "count": 2, "more": 0.5}, key_group=2)])
    reader = StateReader(history)
    assert state(reader) == [("a", 1, 1, None), ("b", 2, 2, 0.5)]
    assert changes(reader, 10) == [
        ("b", 2, 2, None, "update_preimage", 11),
        ("b", 2, 2, 0.5, "update_postimage", 11),
    ]
    assert reader.read(10).schema == reader.schema(10)
    assert reader.schema(10).field("count").type == pa.int32()


def test_a_value_that_is_called_like_a_key_or_a_state_is_told_apart() -> None:
    shape = StateShape(
        state="id",
        key_schema_json=schema_json(id="long"),
        value_schema_json=schema_json(id="string", count="long"),
        columns=("id", "id_", "count"),
    )
    history = history_of([Row((1,), {"id": "a", "count": 3})], shape=shape)
    table = StateReader(history).read()
    assert table.to_pylist() == [{"id": 1, "id_": "a", "count": 3}]
    assert StateReader(history).read(columns=["id_"]).to_pylist() == [{"id_": "a"}]


def test_rows_of_other_states_of_the_operator_are_left_out() -> None:
    history = history_of([put(1, "a", 1)], [])
    other = replace(put(1, "x", 9), state="timers")
    history.commit(12, [other, put(2, "b", 2), replace(gone(1), state="timers")])
    assert state(StateReader(history)) == [("a", 1, 1), ("b", 2, 2)]
    missing = replace(SHAPE, state="another")
    history.shape = missing
    history.commit(13, [])
    assert state(StateReader(history)) == []


def test_a_state_without_keys_has_one_row() -> None:
    shape = StateShape("row", schema_json(), schema_json(total="long"), ("total",))
    history = history_of(
        [Row((), {"total": 1})], [Row((), {"total": 2})], [Row((), None)], shape=shape
    )
    reader = StateReader(history)
    assert rows(reader.read(11)) == [(2,)]
    assert rows(reader.read()) == []
    assert changes(reader, 10) == [
        (1, "update_preimage", 11),
        (2, "update_postimage", 11),
        (2, "delete", 12),
    ]


def test_versions_are_those_that_are_there_with_their_times() -> None:
    history = three_versions()
    history.delete(11)
    assert StateReader(history).versions() == [VersionInfo(10, 0), VersionInfo(12, 2000)]


def test_a_version_that_retention_deletes_meanwhile_is_left_out() -> None:
    history = three_versions()

    class Listed(FakeStateHistory):
        def versions(self) -> list[int]:
            return [9, *history.versions()]

    listed = Listed(SHAPE)
    for version in history.versions():
        listed.commit(version, [])
    assert [info.version for info in StateReader(listed).versions()] == [10, 11, 12]


def test_of_versions_of_one_time_the_newest_counts() -> None:
    history = three_versions()
    history.commit(13, [], 2000)
    assert StateReader(history).latest_at(2000) == 13


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (-1, "its oldest is of 1970-01-01 00:00:00.000+00:00, its newest of 1970-01-01 00:00:02"),
        (2001, "1970-01-01 00:00:02.000+00:00. Ask for a time between them, or give no time"),
    ],
)
def test_a_time_out_of_range_is_an_error_naming_the_range(timestamp_ms: int, expected: str) -> None:
    with pytest.raises(TimestampOutOfRangeError, match=re.escape(expected)):
        StateReader(three_versions()).latest_at(timestamp_ms)


def test_a_version_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    history = three_versions()
    history.delete(10)
    reader = StateReader(history)
    expected = "version 10 of memory://fake was deleted by retention; it holds versions 11 to 12."
    with pytest.raises(VersionNotRetainedError, match=expected):
        reader.read(10)
    with pytest.raises(VersionNotRetainedError, match=expected):
        reader.schema(10)
    with pytest.raises(VersionNotRetainedError, match=expected):
        reader.changes(10, 12)
    with pytest.raises(VersionNotRetainedError, match=r"version -1 of .* is not there; it holds"):
        reader.changes(-1)
    with pytest.raises(VersionNotRetainedError, match=r"version 13 of .* is not written yet"):
        reader.changes(11, 13)


def test_a_store_without_versions_says_so() -> None:
    reader = StateReader(FakeStateHistory(SHAPE))
    assert reader.versions() == []
    calls = (reader.read, reader.schema, lambda: reader.changes(None), lambda: reader.latest_at(0))
    for call in calls:
        with pytest.raises(CheckpointStoreError, match="memory://fake holds no version yet: let"):
            call()


def test_changes_begin_with_a_version_whose_files_are_cut() -> None:
    """A snapshot of some key groups leaves handles for the key groups before and after."""
    history = history_of([put(n, "a", n) for n in range(8)], [put(3, "b", 33)])
    (whole,) = history.at(10).state
    snapshot = history.write(10, [put(3, "a", 3), put(4, "a", 4)])
    cut = [replace(whole, key_groups=KeyGroupRange(start, end)) for start, end in ((0, 2), (5, 7))]
    history.replace(10, *cut, snapshot)
    feed = changes(StateReader(history), None, 11, preimages=False)
    assert len(feed) == 9
    assert {row[1] for row in feed} == set(range(8))
