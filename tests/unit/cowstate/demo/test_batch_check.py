"""The batch computation gives the expected answer, and differences from the stream are found."""

from __future__ import annotations

import pandas as pd

from cowstate.demo.batch_check import COLUMNS, differences, expected_legs

LIMIT = 720


def flights(*legs: tuple[str | None, int, int | None, int | None, int | None]) -> pd.DataFrame:
    """Make flights from (tail number, scheduled minute, departure delay, arrival delay, air
    time)."""
    names = ["tailnum", "scheduled_minute", "dep_delay", "arr_delay", "air_time"]
    rows = pd.DataFrame(legs, columns=names)
    return rows.assign(carrier="B6", flight=1, origin="JFK", dest="BUF", hour=7)


def answer(*legs: tuple[str | None, int, int | None, int | None, int | None]) -> list[list[object]]:
    columns = ["tailnum", "scheduled_minute", "carried", "chain_legs", "chain_carried"]
    expected = expected_legs(flights(*legs), LIMIT)[[*columns, "chain_start_minute"]]
    return expected.astype(object).where(expected.notna(), None).to_numpy().tolist()


def test_chains_are_counted_for_each_aircraft_apart() -> None:
    assert answer(
        ("N1", 0, 30, 30, 60),
        ("N2", 10, 50, 50, 60),
        ("N1", 200, 20, 25, 60),
        ("N2", 210, 60, 0, 60),
        ("N1", 400, 25, 10, 60),
        ("N1", 600, 0, 15, 60),
        ("N1", 800, 5, 5, 60),
    ) == [
        ["N1", 0, 0, 0, 0, None],
        ["N1", 200, 20, 1, 20, 200],
        ["N1", 400, 25, 2, 45, 200],
        ["N1", 600, 0, 0, 0, None],
        ["N1", 800, 5, 1, 5, 800],
        ["N2", 10, 0, 0, 0, None],
        ["N2", 210, 50, 1, 50, 210],
    ]


def test_a_flight_that_is_no_leg_ends_no_chain_a_diverted_leg_or_long_layover_does() -> None:
    assert answer(
        ("N1", 0, 30, 30, 60),
        ("N1", 100, None, None, None),
        (None, 150, 9, 9, 60),
        ("N1", 200, 20, None, None),
        ("N1", 400, 20, 20, 60),
        ("N1", 481 + LIMIT, 20, 20, 60),
    ) == [
        ["N1", 0, 0, 0, 0, None],
        ["N1", 200, 20, 1, 20, 200],
        ["N1", 400, 0, 0, 0, None],
        ["N1", 481 + LIMIT, 0, 0, 0, None],
    ]


def test_equal_answers_have_no_differences_in_any_order_of_rows() -> None:
    batch = expected_legs(flights(("N1", 0, 30, 30, 60), ("N1", 200, 20, 20, 60)), LIMIT)
    assert not differences(batch.iloc[::-1], batch)


def test_a_changed_a_missing_and_a_repeated_leg_are_differences() -> None:
    batch = expected_legs(
        flights(*[("N1", 200 * number, 20, 20, 60) for number in range(4)]), LIMIT
    )
    changed = batch.copy()
    changed.loc[1, "carried"] += 1
    stream = pd.concat([changed.head(3), batch.head(1)])
    report = differences(stream, batch)
    assert report.only_stream["scheduled_minute"].tolist() == [0, 200]
    assert report.only_batch["scheduled_minute"].tolist() == [200, 600]
    assert list(report.only_batch.columns) == COLUMNS
    assert str(report).startswith("2 legs are only in the stream answer")
    assert "2 legs are only in the batch answer" in str(report)
