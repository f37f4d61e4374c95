"""ScriptedOperator runs a processor in users' unit tests with rows, time and restarts, no Spark."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from spark_state.errors import ConfigurationError, StateMigrationError
from spark_state.testing import ScriptedOperator

MINUTE = 60_000


class PageSessions(StatefulProcessor):
    """Emits the pages of a user after a minute without a page."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._pages = handle.getListState("pages", "page string")
        self._times = handle.getMapState("times", "page string", "n bigint")
        self._ends = handle.getValueState("ends", "at_ms long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.page == "error":
                raise ValueError(f"no such page for {key[0]}")
            self._pages.appendValue((row.page,))
            before = self._times.getValue((row.page,))
            self._times.updateValue((row.page,), (before.n + 1 if before else 1,))
        if self._ends.exists():
            self._handle.deleteTimer(self._ends.get()[0])
        ends_ms = timerValues.getCurrentProcessingTimeInMs() + MINUTE
        self._ends.update((ends_ms,))
        self._handle.registerTimer(ends_ms)
        return iter([])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(user=key[0], pages=[page for (page,) in self._pages.get()])
        for state in (self._pages, self._times, self._ends):
            state.clear()

    def close(self) -> None:
        pass


def sessions(**changes: Any) -> ScriptedOperator:
    arguments: dict[str, Any] = {
        "rows": "user string, page string",
        "key": "user",
        "output": "user string, pages array<string>",
        "time_mode": "ProcessingTime",
    }
    return ScriptedOperator(PageSessions(), **(arguments | changes))


def test_rows_time_and_restarts_are_scripted() -> None:
    with sessions() as operator:
        assert operator.batch([("ada", "home"), ("bo", "home")], at=0) == []
        assert operator.batch([Row(user="ada", page="shop")], at=30_000) == []
        assert operator.state("pages") == {
            "ada": [{"page": "home"}, {"page": "shop"}],
            "bo": [{"page": "home"}],
        }
        assert operator.timers() == {"ada": [90_000], "bo": [60_000]}
        operator.restart(parallelism=5)
        assert operator.batch(at=60_000) == [Row(user="bo", pages=["home"])]
        operator.restart(parallelism=2)
        assert operator.batch([{"user": "cy", "page": "home"}], at=90_000) == [
            Row(user="ada", pages=["home", "shop"])
        ]
        assert operator.state("times") == {"cy": [({"page": "home"}, {"n": 1})]}
        assert operator.state("ends") == {"cy": {"at_ms": 150_000}}


def test_a_batch_that_fails_leaves_the_state_and_can_be_run_again() -> None:
    with sessions() as operator:
        operator.restart(parallelism=3)
        operator.batch([("ada", "home")], at=0)
        with pytest.raises(ValueError, match="no such page for bo"):
            operator.batch([("ada", "shop"), ("bo", "error"), ("cy", "home")], at=1_000)
        assert operator.state("pages") == {"ada": [{"page": "home"}]}
        operator.batch([("ada", "shop"), ("cy", "home")], at=1_000)
        assert operator.state("pages")["ada"] == [{"page": "home"}, {"page": "shop"}]


def test_without_a_time_a_batch_comes_a_second_after_the_last() -> None:
    with sessions() as operator:
        operator.batch([("ada", "home")], at=datetime.datetime.fromtimestamp(100, datetime.UTC))
        operator.batch([("bo", "home")])
        assert operator.timers() == {"ada": [160_000], "bo": [161_000]}


class EventTimeCounts(StatefulProcessor):
    """Counts the rows of a key; a timer at the first event time + 10 s emits the count."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        if not self._count.exists():
            first = min(row.at for row in seen)
            self._handle.registerTimer(int(first.timestamp() * 1000) + 10_000)
        self._count.update(((self._count.get() or (0,))[0] + len(seen),))
        return iter([])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(kind=key[0], day=key[1], n=self._count.get()[0])
        self._count.clear()

    def close(self) -> None:
        pass


def at(second: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(second, datetime.UTC)


def test_in_event_time_the_watermark_follows_the_rows() -> None:
    day = datetime.date(2026, 1, 1)
    with ScriptedOperator(
        EventTimeCounts(),
        rows="kind int, day date, at timestamp",
        key=["kind", "day"],
        output="kind int, day date, n bigint",
        time_mode="EventTime",
        watermark=("at", 5_000),
    ) as operator:
        operator.restart(parallelism=2)
        assert operator.batch([(1, day, at(1)), (2, day, at(3))]) == []
        assert operator.batch([(1, day, at(20))]) == []
        # The watermark is now 15 s: the timers at 11 s and 13 s fire. A row at 4 s is late only in
        # the next batch.
        assert sorted(operator.batch([(2, day, at(4))])) == [
            Row(kind=1, day=day, n=2),
            Row(kind=2, day=day, n=2),
        ]
        assert operator.batch([(3, day, at(14))]) == []
        assert operator.state("count") == {}


def test_another_version_of_the_processor_goes_on_with_the_state() -> None:
    class WithDevice(PageSessions):
        def init(self, handle: Any) -> None:
            super().init(handle)
            self._ends = handle.getValueState("last", "at_ms long")

    class OtherPages(PageSessions):
        def init(self, handle: Any) -> None:
            self._pages = handle.getListState("pages", "page int")

    with sessions() as operator:
        operator.batch([("ada", "home")], at=0)
        operator.restart(processor=WithDevice())
        operator.batch([("ada", "shop")], at=1_000)
        assert operator.state("last") == {"ada": {"at_ms": 61_000}}
        operator.restart(processor=OtherPages())
        with pytest.raises(StateMigrationError, match="'pages'"):
            operator.batch([("ada", "shop")], at=2_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "name"}, "'name' is no column of rows, which are user, page"),
        ({"time_mode": "processing"}, r"^\[STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE\].* processing"),
        ({"watermark": ("page", 5)}, "other mode has one; watermark is .'page', 5. in mode"),
        ({"time_mode": "EventTime"}, "needs watermark=.* watermark is None in mode"),
        (
            {"time_mode": "EventTime", "watermark": ("page", 5)},
            "column 'page' of the watermark is string; an event time is a timestamp",
        ),
        ({"time_mode": "EventTime", "watermark": ("at", 5)}, "'at' is no column of rows"),
        ({"rows": "user string, page strang"}, "rows: "),
        ({"rows": 5}, "5 is neither a StructType nor DDL text"),
        ({"rows": "user map<string, int>, page string"}, "'user' of .* can be no key"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sessions(**changes)


@pytest.mark.parametrize("parallelism", [0, 17])
def test_there_are_one_to_sixteen_subtasks(parallelism: int) -> None:
    with sessions() as operator, pytest.raises(ConfigurationError, match="allowed are 1 to 16"):
        operator.restart(parallelism=parallelism)


@pytest.mark.parametrize("row", [("ada",), "ada", 5, ("ada", "home", 1)])
def test_what_is_no_row_is_refused(row: Any) -> None:
    with (
        sessions() as operator,
        pytest.raises(ConfigurationError, match="does not fit rows: give a tuple"),
    ):
        operator.batch([row])


@pytest.mark.parametrize("row", [{"user": "ada"}, {"user": "a", "page": "b", "pgae": "c"}, {}])
def test_a_dict_has_all_columns_and_no_others(row: Any) -> None:
    with sessions() as operator, pytest.raises(ConfigurationError, match="a dict with these keys"):
        operator.batch([row])


WITHOUT_JAVA = """
import sys
sys.modules["pytest"] = None
from pyspark.sql.streaming import StatefulProcessor
from spark_state.testing import ScriptedOperator

class Nothing(StatefulProcessor):
    def init(self, handle):
        handle.getValueState("n", "n long")
    def handleInputRows(self, key, rows, timerValues):
        return iter([])
    def close(self):
        pass

with ScriptedOperator(Nothing(), rows="k int", key="k", output="k int") as operator:
    assert operator.batch([(1,)]) == []
"""


@pytest.mark.long
def test_it_needs_neither_java_nor_pytest() -> None:
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-c", WITHOUT_JAVA]
    subprocess.run(command, check=True, timeout=300, env=environment)
