"""Processors that tests run. The processors travel to workers and hosts by value."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

POISON = 999_999
TOTALS_SCHEMA = "key string, rows bigint, total bigint"


class Processor(StatefulProcessor):
    """A processor without states, and with nothing to close."""

    def init(self, handle: Any) -> None:
        pass

    def close(self) -> None:
        pass


class RunningTotals(Processor):
    """Processor that counts and sums the rows of a key, and emits one Row(key, rows, total) per key
    and epoch."""

    def init(self, handle: Any) -> None:
        self._totals = handle.getValueState("totals", "rows bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        for row in rows:
            count += 1
            total += row.value
        self._totals.update((count, total))
        yield Row(key=key[0], rows=count, total=total)


class DoubledTotals(RunningTotals):
    """RunningTotals with every value doubled."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        doubled = (Row(value=2 * row.value) for row in rows)
        return super().handleInputRows(key, doubled, timerValues)


class FailingAt(RunningTotals):
    """RunningTotals that raises ValueError on a row with a negative value."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        for row in seen:
            if row.value < 0:
                raise ValueError(f"a negative value: {row.value} of {key}")
        yield from super().handleInputRows(key, iter(seen), timerValues)


class SeesTime(Processor):
    """Processor that emits Row(key, rows, total), with the batch's time as rows and the watermark
    as total."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        batch_ms = timerValues.getCurrentProcessingTimeInMs()
        yield Row(key=key[0], rows=batch_ms, total=timerValues.getCurrentWatermarkInMs())


class KeepsValues(Processor):
    """Processor that keeps all values of a key in a list and counts the values in a map. A negative
    value raises ValueError.

    Emits Row(key, rows, total): the length of the list, and the number of different values.
    """

    def init(self, handle: Any) -> None:
        self._items = handle.getListState("items", "value bigint")
        self._counts = handle.getMapState("counts", "value bigint", "times bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            before = self._counts.getValue((row.value,))
            self._counts.updateValue((row.value,), (before[0] + 1 if before else 1,))
            self._items.appendValue((row.value,))
            if row.value < 0:
                raise ValueError(f"a negative value: {row.value} of {key}")
        items, counts = list(self._items.get()), dict(self._counts.iterator())
        assert counts == {value: (items.count(value),) for value in counts}
        yield Row(key=key[0], rows=len(items), total=len(counts))


class KeepsTotalsAndValues(KeepsValues):
    """KeepsValues that also keeps a total. All three states of a key must agree. A row with value 0
    clears all three.

    Emits Row(key, rows, total): the number and the sum of the values since the last clear.
    """

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._totals = handle.getValueState("totals", "rows bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        values = [row.value for row in rows]
        if 0 in values:
            for state in (self._items, self._counts, self._totals):
                state.clear()
        kept = [Row(value=value) for value in values if value != 0]
        list(super().handleInputRows(key, iter(kept), timerValues))
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        count, total = count + len(kept), total + sum(row.value for row in kept)
        if kept:
            self._totals.update((count, total))
        items = [item[0] for item in self._items.get()]
        assert (count, total) == (len(items), sum(items)), (key, count, total, items)
        yield Row(key=key[0], rows=count, total=total)


class Speaking(RunningTotals):
    """RunningTotals that prints and logs."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        print("a processor prints")
        logging.getLogger("processor").warning("a processor logs")


class KillingOnce(RunningTotals):
    """RunningTotals that kills a process, once, in the epoch that has a row with value `POISON`.

    `victim`: "host" (the processor's own process) or "executor" (the JVM of the host). `marker`: a
    file that exists after the kill. The row counts like any other row.
    """

    def __init__(self, victim: str, marker: Path) -> None:
        self._victim = victim
        self._marker = marker

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        yield from super().handleInputRows(key, iter(seen), timerValues)
        if any(row.value == POISON for row in seen) and not self._marker.exists():
            self._marker.touch()
            executor = int(sys.argv[sys.argv.index("--executor") + 1])
            os.kill(os.getpid() if self._victim == "host" else executor, signal.SIGKILL)


class KillingAtDatabases(RunningTotals):
    """RunningTotals that also counts the last digits of a key's values in a map. Kills its host
    once at each of the `points`, where a database is written or restored. `markers`: a folder that
    gets a file for each point of a kill."""

    # Module, class, method, and the number of the call after which the host is killed.
    points = (
        ("spark_state.rocksdb.database", "Database", "checkpoint", 1),
        ("checkpoint_store.files.database_file_store", "DatabaseFileStore", "_upload", 2),
        ("checkpoint_store.files.database_file_store", "DatabaseFileStore", "write", 1),
        (
            "checkpoint_store.operators.completed_checkpoint_store",
            "CompletedCheckpointStore",
            "publish_barrier",
            4,
        ),
        ("checkpoint_store.files.database_file_store", "DatabaseFileStore", "contents", 1),
        ("checkpoint_store.files.database_file_store", "DatabaseFileStore", "_verified", 3),
        ("checkpoint_store.files.database_file_store", "DatabaseFileStore", "fetch", 1),
        ("spark_state.rocksdb.database", "ColumnFamily", "clip", 1),
        ("spark_state.rocksdb.database", "Database", "copy", 1),
    )

    def __init__(self, markers: Path) -> None:
        self._markers = markers

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._digits = handle.getMapState("digits", "digit bigint", "times bigint")
        if "--executor" in sys.argv:  # in a host; a host may have patches already
            for module, owner, method, call in self.points:
                self._kill_at(getattr(importlib.import_module(module), owner), method, call)

    def _kill_at(self, owner: Any, method: str, fatal: int) -> None:
        function, calls = getattr(owner, method), count(1)
        if hasattr(function, "kills"):
            return
        marker = self._markers / f"{owner.__name__}.{method}"

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            if next(calls) >= fatal and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        call.kills = True  # type: ignore[attr-defined]
        setattr(owner, method, call)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        for row in seen:
            digit = (row.value % 10,)
            before = self._digits.getValue(digit)
            self._digits.updateValue(digit, (before[0] + 1 if before else 1,))
        for total in super().handleInputRows(key, iter(seen), timerValues):
            assert sum(times for _, (times,) in self._digits.iterator()) == total.rows
            yield total


class FailingToComplete(RunningTotals):
    """RunningTotals whose host fails to complete its first epoch, as if the store were away."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        owner = importlib.import_module("spark_state.subtasks.store_session").StoreSession
        if "--executor" not in sys.argv or hasattr(owner, "has_failed"):
            return
        complete, owner.has_failed = owner.complete, False

        def fail_once(store: Any, barrier: Any) -> None:
            if not owner.has_failed:
                owner.has_failed = True
                raise OSError("no manifest today")
            complete(store, barrier)

        owner.complete = fail_once


cloudpickle.register_pickle_by_value(sys.modules[__name__])


class LongTexts(RunningTotals):
    """Processor that keeps a text of `length` characters for each key. `calls`: a file that grows
    by one character per call."""

    def __init__(self, length: int, calls: Path | None = None) -> None:
        self._length = length
        self._calls = calls

    def init(self, handle: Any) -> None:
        self._text = handle.getValueState("text", "text string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if self._calls is not None:
            with self._calls.open("a") as file:
                file.write("x")
        had = self._text.exists()
        self._text.update((f"{key[0]:<{self._length}}",))
        yield Row(key=key[0], rows=int(had), total=0)
