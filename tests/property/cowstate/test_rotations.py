"""The processor of rotations agrees with the batch computation for any cut into batches."""

from __future__ import annotations

from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from cowstate.demo.batch_check import differences, expected_legs
from cowstate.demo.rotations import LAYOVER_LIMIT_MINUTES, Rotations
from tests.support.examples import examples

DELAYS = st.integers(-20, 400)
FLOATS = dict.fromkeys(["dep_delay", "arr_delay", "air_time"], "float64")


@st.composite
def flights_in_time_order(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw flights of two aircraft; some are cancelled, some are diverted, some share their
    minute."""
    flights: list[dict[str, Any]] = []
    minute = 0
    for number in range(draw(st.integers(1, 25))):
        minute += draw(st.sampled_from([0, 1, 90, 300, 800]))
        departed, arrived = draw(st.sampled_from([(True, True), (True, False), (False, False)]))
        flights.append(
            {
                "tailnum": draw(st.sampled_from(["N1", "N2"])),
                "scheduled_minute": minute,
                "carrier": "B6",
                "flight": number,
                "origin": "JFK",
                "dest": "BUF",
                "hour": 7,
                "dep_delay": draw(DELAYS) if departed else None,
                "arr_delay": draw(DELAYS) if arrived else None,
                "air_time": draw(st.integers(20, 400)) if arrived else None,
            }
        )
    return flights


@examples(20)
@given(flights=flights_in_time_order(), data=st.data())
def test_stream_and_batch_agree(flights: list[dict[str, Any]], data: st.DataObject) -> None:
    tester = TwsTester(Rotations())
    legs: list[Row] = []
    rest = flights
    while rest:
        size = data.draw(st.integers(1, len(rest)), label="flights in the batch")
        batch, rest = rest[:size], rest[size:]
        shuffled = data.draw(st.permutations(batch), label="their order")
        for tailnum in ("N1", "N2"):
            rows = [Row(**flight) for flight in shuffled if flight["tailnum"] == tailnum]
            if rows:
                legs += tester.test(tailnum, rows)
    expected = expected_legs(pd.DataFrame(flights).astype(FLOATS), LAYOVER_LIMIT_MINUTES)
    columns = list(expected.columns)
    stream = pd.DataFrame([leg.asDict() for leg in legs], columns=columns)
    assert str(differences(stream, expected)) == ""
