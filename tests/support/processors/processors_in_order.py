"""Processors that sort the rows of a key by value before processing.

A shuffle gives rows in any order. With sorted rows, different engines give the same results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from tests.support.processors.scripted_processor import Scripted

GAP_MS = 12


class InOrder:
    """Mixin that sorts the rows. The mixin comes before the processor's class."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        in_order = sorted(rows, key=lambda row: row.value)
        behind: Any = super()
        output: Iterator[Row] = behind.handleInputRows(key, iter(in_order), timerValues)
        return output


class ScriptedInOrder(InOrder, Scripted):
    """Scripted with sorted rows."""


class Sessions(StatefulProcessor):
    """Processor that counts the rows of a key until GAP_MS ms have passed without a row. Values are
    times in ms.

    Emits Row(key, rows, total): the count, and the time of the last row, or 0 while the session is
    open.
    """

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._session = handle.getValueState("session", "rows bigint, last_ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        times_ms = [row.value for row in rows]
        count, last_ms = self._session.get() or (0, 0)
        if count:
            self._handle.deleteTimer(last_ms + GAP_MS)
        count, last_ms = count + len(times_ms), max(last_ms, *times_ms)
        self._session.update((count, last_ms))
        self._handle.registerTimer(last_ms + GAP_MS)
        yield Row(key=key[0], rows=count, total=0)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        count, last_ms = self._session.get()
        self._session.clear()
        yield Row(key=key[0], rows=count, total=last_ms)

    def close(self) -> None:
        pass


cloudpickle.register_pickle_by_value(sys.modules[__name__])
