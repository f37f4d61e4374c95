"""The flights job prints the right chains of delay, and splits delay by hour."""

from __future__ import annotations

import pandas as pd
import pytest

from cowstate.demo.picture import delay_by_hour
from cowstate.demo.report import (
    DelayChain,
    chain_table,
    worst_chains,
)

JULY_MORNING = 1_372_680_000 // 60  # 2013-07-01 12:00 UTC, 08:00 in New York


def legs(*rows: tuple[str, str, int, int, int, int]) -> pd.DataFrame:
    """Make legs from (tail number, destination, departure delay, carried, chain's legs and
    minutes)."""
    names = ["tailnum", "dest", "dep_delay", "carried", "chain_legs", "chain_carried"]
    frame = pd.DataFrame(rows, columns=names)
    frame["chain_start_minute"] = pd.Series(JULY_MORNING, frame.index).where(
        frame["chain_legs"] > 0
    )
    return frame.assign(origin="JFK", hour=7)


LEGS = legs(
    ("N1", "BUF", 30, 0, 0, 0),
    ("N1", "BOS", 20, 20, 1, 20),
    ("N1", "MIA", 25, 25, 2, 45),
    ("N2", "SFO", -4, 0, 0, 0),
    ("N2", "LAX", 90, 60, 1, 60),
)


def test_the_worst_chains_come_first_with_their_route() -> None:
    assert worst_chains(LEGS) == [
        DelayChain("N2", "2013-07-01 08:00", 1, 60, "JFK-LAX"),
        DelayChain("N1", "2013-07-01 08:00", 2, 45, "JFK-BOS  JFK-MIA"),
    ]


def test_the_table_has_a_line_for_each_chain_under_its_heading() -> None:
    assert chain_table(worst_chains(LEGS)).splitlines() == [
        " #  aircraft  began (New York)  legs  minutes carried  route",
        " 1  N2        2013-07-01 08:00     1               60  JFK-LAX",
        " 2  N1        2013-07-01 08:00     2               45  JFK-BOS  JFK-MIA",
    ]


def test_delay_by_hour_splits_positive_delay_into_carried_and_other() -> None:
    assert delay_by_hour(LEGS).to_dict("index") == {
        7: {"carried": pytest.approx(21.0), "other": pytest.approx(12.0)}
    }
