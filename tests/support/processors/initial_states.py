"""Processors that begin with an initial state, given as rows or as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from tests.support.processors.processors import RunningTotals


class BeginsWith(RunningTotals):
    """RunningTotals that begin with the rows of an initial state. Each initial row counts as ten
    rows."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        self._totals.update((count + 10, total + initialState.total))


class BeginsWithFrames(BeginsWith):
    """BeginsWith in the pandas API."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for total in initialState["total"]:
            super().handleInitialState(key, Row(total=int(total)), timerValues)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        values = (Row(value=int(value)) for frame in rows for value in frame["value"])
        totals = super().handleInputRows(key, values, timerValues)
        yield pd.DataFrame([row.asDict() for row in totals])


class ExpiresWith(BeginsWith):
    """BeginsWith with a timer at the time of each row of the initial state. A timer emits Row(key,
    rows=-1, total=time)."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._handle = handle

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        super().handleInitialState(key, initialState, timerValues)
        self._handle.registerTimer(initialState.total)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(key=key[0], rows=-1, total=expiredTimerInfo.getExpiryTimeInMs())
