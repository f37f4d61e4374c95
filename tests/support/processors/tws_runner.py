"""PySpark's own in-memory runner of StatefulProcessors, run epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from tests.support.processors.scripted_processor import Output, ScriptedState

Rows = Iterable[tuple[str | None, int]]
Content = dict[str | None, Any]
LONG_AGO_MS = -(10**15)


class _Copying:
    """A list or map state whose iterators go over a copy, like the iterators of Spark's own
    operator. The iterators of PySpark's runner see writes during the iteration, or fail."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._state, name)
        if name not in ("get", "iterator", "keys", "values"):
            return method
        return lambda: iter(list(method()))


class _CopyingHandle:
    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._handle, name)
        if name not in ("getListState", "getMapState"):
            return method
        return lambda *declared, **options: _Copying(method(*declared, **options))


class _WithCopies:
    """A processor whose states are `_Copying`."""

    def __init__(self, processor: StatefulProcessor) -> None:
        # The original processor gets no states, so it can still be pickled.
        self._processor = copy(processor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def init(self, handle: Any) -> None:
        self._processor.init(_CopyingHandle(handle))


class TwsRunner:
    """A processor in PySpark's runner, which takes one key at a time."""

    def __init__(self, processor: StatefulProcessor, time_mode: str) -> None:
        self.tester = TwsTester(
            _WithCopies(processor), timeMode=time_mode, eventTimeExtractor=no_row_is_late
        )
        # The runner refuses timers for the past in event time. In Spark's own operator, such timers
        # fire at once.
        self.tester.handle.setWatermark(LONG_AGO_MS)

    def restart(self, processor: StatefulProcessor) -> None:
        """Go on with another processor."""
        started: Any = _WithCopies(processor)
        started.init(self.tester.handle)
        self.tester.processor = started

    def forget(self, states: Iterable[ScriptedState]) -> None:
        """Clear the states for all keys. PySpark's runner has no time to live."""
        for state in states:
            self._states(state).clear()

    def epoch(self, rows: Rows, now_ms: int) -> list[Output]:
        """Run an epoch and return the output. `now_ms`: both the batch's time and the watermark."""
        # The setters of the tester would fire timers before the rows of the epoch.
        self.tester._currentProcessingTimeMs = self.tester._currentWatermarkMs = now_ms
        by_key: dict[str | None, list[Row]] = {}
        for key, value in rows:
            by_key.setdefault(key, []).append(Row(key=key, value=value))
        output = []
        for key, its_rows in by_key.items():
            output += self.tester.test(key, its_rows)
        output += self.tester._handleExpiredTimers()
        return [tuple(row) for row in output]

    def state(self, state: ScriptedState) -> Content:
        """The state's content by key, with elements in order."""
        # PySpark's runner keeps an empty map; in Spark an empty map does not exist.
        return {key: content for key, content in self._states(state).items() if content}

    def _states(self, state: ScriptedState) -> Content:
        handle = self.tester.handle
        kinds: dict[str, Any] = {
            "value": handle.value_states,
            "list": handle.list_states,
            "map": handle.map_states,
        }
        content: Content = kinds[state.kind][state.name].state
        return content

    def timers(self) -> Content:
        """The timers of all keys with timers."""
        timers = self.tester.handle._timers
        return {key: list(timers.listTimers(key)) for key in timers.getAllKeysWithTimers()}


def no_row_is_late(row: Row) -> float:
    """An event time after every watermark."""
    return float("inf")
