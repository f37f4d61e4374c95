"""Where a stream of a table begins, and how far its batches go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.object_store import LocalObjectStore
from datasources.asked_columns import asked_columns
from datasources.table_options import parse_stream_options
from datasources.table_stream import TableStreamReader
from tests.support.table_rows_of import ScriptedTable, put

NO_COLUMNS = asked_columns("", StructType())


def reader(
    table: Path, clock: Callable[[], float] = lambda: 0.0, **options: Any
) -> TableStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    parsed = parse_stream_options({"path": str(table), **texts})
    return TableStreamReader(parsed, NO_COLUMNS, clock)


def write(table: Path, *batches: int) -> None:
    query = ScriptedTable(LocalObjectStore(table))
    for batch in batches:
        query.commit(batch, put(batch, "a", batch))


SNAPSHOT = {"version": -1, "after": "snapshot"}
NOTHING = {"version": -1, "after": "nothing"}


def after(version: int) -> dict[str, Any]:
    return {"version": version, "after": "version"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SNAPSHOT),
        ({"startingVersion": "earliest"}, NOTHING),
        ({"startingVersion": "latest"}, after(3)),
        ({"startingVersion": 0}, NOTHING),
        ({"startingVersion": 2}, after(1)),
        ({"startingVersion": 4}, after(3)),
        ({"startingVersion": 9}, after(8)),
        ({"startingTimestamp": 0}, NOTHING),
        ({"startingTimestamp": 10**15}, after(3)),
    ],
)
def test_a_stream_begins_where_its_options_say(
    tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    write(tmp_path, 0, 1, 2, 3)
    assert reader(tmp_path, **options).initialOffset() == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SNAPSHOT),
        ({"startingVersion": "latest"}, NOTHING),
        ({"startingVersion": 0}, NOTHING),
        ({"startingVersion": 3}, after(2)),
    ],
)
def test_a_table_that_is_not_there_yet_is_waited_for_from_the_same_place(
    tmp_path: Path, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    stream = reader(tmp_path / "later", **options)
    start = stream.initialOffset()
    assert start == expected
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    write(tmp_path / "later", 0, 1, 2, 3, 4)
    assert stream.latestOffset(start, ReadAllAvailable()) == after(4)


def test_versions_before_the_first_one_asked_for_are_left_out_when_they_come(
    tmp_path: Path,
) -> None:
    write(tmp_path, 0, 1)
    stream = reader(tmp_path, startingVersion=3)
    start = stream.initialOffset()
    write(tmp_path, 2)
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    write(tmp_path, 3)
    assert stream.latestOffset(start, ReadAllAvailable()) == after(3)


def test_a_first_version_whose_state_before_is_gone_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, *range(4))
    for version in (0, 1):
        (tmp_path / "versions" / f"{version:019d}.json").unlink()
    with pytest.raises(VersionNotRetainedError, match="holds versions 2 to 3"):
        reader(tmp_path, startingVersion=2).initialOffset()
    assert reader(tmp_path, startingVersion=3).initialOffset() == after(2)


class Watch:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def newest(stream: TableStreamReader, start: dict[str, Any]) -> int:
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end["version"] >= start["version"]
    return int(end["version"])


def test_new_versions_are_looked_for_when_the_poll_interval_is_over(tmp_path: Path) -> None:
    watch = Watch()
    write(tmp_path, 0)
    stream = reader(tmp_path, watch, pollIntervalSeconds=5)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1)
    watch.now += 4.9
    assert newest(stream, after(0)) == 0
    assert stream.reportLatestOffset() == after(0)
    watch.now += 0.1
    assert newest(stream, after(0)) == 1
    write(tmp_path, 2)
    # Time counts from the look, not from when something was found.
    watch.now += 4.9
    assert stream.reportLatestOffset() == after(1)
    watch.now += 0.1
    assert stream.reportLatestOffset() == after(2)
    assert newest(stream, after(1)) == 2


def test_without_an_interval_new_versions_are_seen_at_once(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = reader(tmp_path)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1)
    assert newest(stream, after(0)) == 1


def test_an_offset_never_goes_back_when_the_last_look_is_older(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = reader(tmp_path, pollIntervalSeconds=5)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1, 2)
    assert stream.latestOffset(after(2), ReadAllAvailable()) == after(2)


def test_available_now_looks_at_once_and_reads_all_that_it_saw(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = reader(tmp_path, pollIntervalSeconds=3600)
    assert newest(stream, SNAPSHOT) == 0
    write(tmp_path, 1, 2)
    stream.prepareForTriggerAvailableNow()
    write(tmp_path, 3)
    assert newest(stream, after(0)) == 2
