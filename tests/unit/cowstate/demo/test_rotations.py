"""A leg carries the right delay, and a chain begins and ends at the right legs."""

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


def carried_by(*legs: Row) -> list[int]:
    """Return the minutes of delay that each leg of one aircraft carries."""
    aircraft, minutes = None, []
    for flown in legs:
        aircraft, carried = follow(aircraft, flown)
        minutes.append(carried)
    return minutes


def test_the_first_leg_carries_nothing() -> None:
    assert carried_by(leg(0, dep_delay=90)) == [0]


@pytest.mark.parametrize(
    ("arr_delay", "dep_delay", "carried"),
    [(50, 30, 30), (30, 50, 30), (-5, 50, 0), (50, -5, 0), (0, 50, 0), (-5, -9, 0)],
)
def test_a_leg_carries_the_smaller_delay(arr_delay: int, dep_delay: int, carried: int) -> None:
    assert carried_by(leg(0, arr_delay=arr_delay), leg(200, dep_delay=dep_delay)) == [0, carried]


@pytest.mark.parametrize(("layover", "carried"), [(0, 20), (1, 0)])
def test_delay_is_carried_over_up_to_twelve_hours_on_the_ground(layover: int, carried: int) -> None:
    first = leg(0, dep_delay=20, arr_delay=20)
    arrived = 0 + 20 + 60
    second = leg(arrived + LAYOVER_LIMIT_MINUTES + layover, dep_delay=20)
    assert carried_by(first, second) == [0, carried]


def test_a_leg_that_was_scheduled_before_the_aircraft_arrived_carries_delay() -> None:
    assert carried_by(leg(0, dep_delay=300, arr_delay=290), leg(100, dep_delay=280)) == [0, 280]


def test_a_diverted_leg_carries_nothing_on() -> None:
    diverted = leg(0, dep_delay=40, arr_delay=None, air_time=None)
    assert carried_by(diverted, leg(200, dep_delay=40)) == [0, 0]


def test_a_chain_counts_its_legs_and_begins_anew_after_a_leg_on_time() -> None:
    legs = [
        leg(0, dep_delay=30, arr_delay=30),
        leg(200, dep_delay=20, arr_delay=25),
        leg(400, dep_delay=25, arr_delay=10),
        leg(600, dep_delay=0, arr_delay=15),
        leg(800, dep_delay=5, arr_delay=5),
    ]
    aircraft, chains = None, []
    for flown in legs:
        aircraft, _ = follow(aircraft, flown)
        chains.append((aircraft.chain_legs, aircraft.chain_carried, aircraft.chain_start_minute))
    assert chains == [(0, 0, None), (1, 20, 200), (2, 45, 200), (0, 0, None), (1, 5, 800)]


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
