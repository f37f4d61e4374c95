"""The processor of rotations has the limit of the layover. A property test has all other rules."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from cowstate.demo.rotations import LAYOVER_LIMIT_MINUTES, follow


@pytest.mark.parametrize(("layover", "carried"), [(0, 20), (1, 0)])
def test_delay_is_carried_over_up_to_twelve_hours_on_the_ground(layover: int, carried: int) -> None:
    """The first leg is 60 minutes in the air, and arrives 20 minutes late."""
    first = Row(scheduled_minute=0, dep_delay=20, arr_delay=20, air_time=60)
    minute = 80 + LAYOVER_LIMIT_MINUTES + layover
    second = Row(scheduled_minute=minute, dep_delay=20, arr_delay=0, air_time=60)
    aircraft, _ = follow(None, first)
    assert follow(aircraft, second)[1] == carried
