"""Computes the answer of the flights job a second time, in one batch and in another way.

This module reads the CSV itself and uses pandas over whole columns. The replay and the processor
share no code with this module, so an error in either shows as a difference.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass

import pandas as pd

from cowstate.demo.replay import flights_csv

_ORDER = ["scheduled_minute", "carrier", "flight", "origin"]
COLUMNS = [
    *("tailnum", *_ORDER, "dest", "hour", "dep_delay", "carried", "chain_legs", "chain_carried"),
    "chain_start_minute",
]


@dataclass(frozen=True, slots=True)
class Differences:
    """Legs that only the stream has, and legs that only the batch has. Both tables are empty when
    the computations agree."""

    only_stream: pd.DataFrame
    only_batch: pd.DataFrame

    def __bool__(self) -> bool:
        return bool(len(self.only_stream) or len(self.only_batch))

    def __str__(self) -> str:
        parts = []
        for name, legs in (("stream", self.only_stream), ("batch", self.only_batch)):
            if len(legs):
                parts.append(f"{len(legs)} legs are only in the {name} answer, such as:")
                parts.append(legs.head(10).to_string(index=False))
        return "\n".join(parts)


def read_flights_with_pandas(limit: int | None = None) -> pd.DataFrame:
    """Read the flights in order of scheduled departure; only the first `limit`, if set."""
    with zipfile.ZipFile(flights_csv()) as archive, archive.open("flights.csv") as file:
        flights = pd.read_csv(file)
    hours = pd.to_datetime(flights["time_hour"], utc=True)
    since_1970 = hours - pd.Timestamp(0, tz="UTC")
    flights["scheduled_minute"] = since_1970 // pd.Timedelta(minutes=1) + flights["minute"]
    return flights.sort_values(_ORDER, ignore_index=True).head(
        len(flights) if limit is None else limit
    )


def expected_legs(flights: pd.DataFrame, layover_limit_minutes: int) -> pd.DataFrame:
    """The rows that the stream must emit for these flights, a row for each leg."""
    legs = flights[flights["tailnum"].notna() & flights["dep_delay"].notna()]
    legs = legs.sort_values(["tailnum", *_ORDER], ignore_index=True)
    arrived = legs["scheduled_minute"] + legs["dep_delay"] + legs["air_time"]
    aircraft = legs["tailnum"]
    previous_delay = legs["arr_delay"].groupby(aircraft).shift()
    layover = legs["scheduled_minute"] - arrived.groupby(aircraft).shift()
    smaller = legs["dep_delay"].where(legs["dep_delay"] < previous_delay, previous_delay)
    carries = (layover <= layover_limit_minutes) & (smaller > 0)
    legs["carried"] = smaller.where(carries, 0)
    run = (~carries).cumsum()
    in_run = legs["carried"].groupby([aircraft, run])
    legs["chain_legs"] = carries.groupby([aircraft, run]).cumsum()
    legs["chain_carried"] = in_run.cumsum()
    start = legs["scheduled_minute"].where(carries)
    legs["chain_start_minute"] = start.groupby([aircraft, run]).transform("min").where(carries)
    return _comparable(legs)


def _comparable(legs: pd.DataFrame) -> pd.DataFrame:
    """The legs with only the columns `COLUMNS`, in a fixed row order and with fixed types, so that
    the legs of the stream and of the batch can be compared."""
    texts = ["tailnum", "carrier", "origin", "dest"]
    numbers = dict.fromkeys([name for name in COLUMNS if name not in texts], "Int64")
    typed = legs[COLUMNS].astype({**dict.fromkeys(texts, "string"), **numbers})
    return typed.sort_values(COLUMNS, ignore_index=True)


def differences(stream: pd.DataFrame, batch: pd.DataFrame) -> Differences:
    """Compare the legs of the stream and of the batch as multisets of rows: a leg that came twice
    is a difference."""
    merged = pd.merge(
        _numbered(_comparable(stream)), _numbered(batch), how="outer", indicator="side"
    )
    return Differences(
        merged.loc[merged["side"] == "left_only", COLUMNS],
        merged.loc[merged["side"] == "right_only", COLUMNS],
    )


def _numbered(legs: pd.DataFrame) -> pd.DataFrame:
    return legs.assign(copy=legs.groupby(COLUMNS, dropna=False).cumcount())
