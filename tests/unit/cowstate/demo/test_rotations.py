"""The processor of rotations has the limit of the layover, and skips cancelled flights."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from cowstate.demo.rotations import LAYOVER_LIMIT_MINUTES, Aircraft, Rotations, follow


def leg(scheduled_minute: int, **fields: Any) -> Row:
    """Make a leg with 60 minutes in the air and no delay, unless `fields` say otherwise."""
    values = {
        "scheduled_minute": scheduled_minute,
        "carrier": "B6",
        "flight": 1,
        "origin": "JFK",
        "dest": "BUF",
        "hour": 7,
        "dep_delay": 0,
        "arr_delay": 0,
        "air_time": 60,
    }
    return Row(**{**values, **fields})


@pytest.mark.parametrize(("layover", "carried"), [(0, 20), (1, 0)])
def test_delay_is_carried_over_up_to_twelve_hours_on_the_ground(layover: int, carried: int) -> None:
    aircraft, _ = follow(None, leg(0, dep_delay=20, arr_delay=20))
    arrived = 0 + 20 + 60
    second = leg(arrived + LAYOVER_LIMIT_MINUTES + layover, dep_delay=20)
    assert follow(aircraft, second)[1] == carried


def test_the_processor_sorts_a_batch_skips_cancelled_flights_and_keeps_the_last_leg() -> None:
    tester = TwsTester(Rotations())
    late, early = leg(200, dep_delay=20, arr_delay=15), leg(0, dep_delay=30, arr_delay=30)
    cancelled = leg(100, dep_delay=None, arr_delay=None, air_time=None)
    rows = tester.test("N1", [late, cancelled, early])
    assert [(row.tailnum, row.scheduled_minute, row.carried) for row in rows] == [
        ("N1", 0, 0),
        ("N1", 200, 20),
    ]
    assert tester.peekValueState("aircraft", "N1") == Aircraft(15, 280, 1, 20, 200)


def test_a_batch_of_cancelled_flights_changes_nothing() -> None:
    tester = TwsTester(Rotations())
    assert tester.test("N1", [leg(0, dep_delay=None)]) == []
    assert tester.peekValueState("aircraft", "N1") is None
