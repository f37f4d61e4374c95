"""The clock of an operator returns the right offset for each script of Spark's questions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from checkpoint_store.errors import StoreUnavailableError
from spark_state.checkpointing.watermarks import Policy
from spark_state.spark.input.clock import Clock, ClockOffset

FIRST = ClockOffset(0, None)
KNOWN = ClockOffset(7, "query")


class ScriptedStores:
    """Stores whose contents the test sets. `reads`: number of reads of times."""

    def __init__(self) -> None:
        self.query: str | None = None
        self.timer_ms: int | None = None
        self.watermarks = (0, 0)
        self.is_down = False
        self.reads = 0

    def query_id(self) -> str | None:
        self._check()
        return self.query

    def newest_times(self, query_id: str) -> Sequence[SubtaskTime]:
        self._check()
        assert query_id == "query"
        self.reads += 1
        used, reached = self.watermarks
        return [SubtaskTime(used, (reached,), self.timer_ms, None)]

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailableError("s3://b/q", "get", 120, "no answer")


class ScriptedClock:
    """A clock whose time in seconds the test sets."""

    def __init__(self, *, in_event_time: bool = False) -> None:
        self.now = 100.0
        self.stores = ScriptedStores()
        policy: Policy | None = "min" if in_event_time else None
        self.clock = Clock(self.stores, policy, lambda: self.now)

    def ask(self, last: ClockOffset) -> ClockOffset:
        return self.clock.offset_after(last)

    def run_batch(self, timer_ms: int | None = None, *, with_control_rows: bool = False) -> None:
        """Run a batch that leaves `timer_ms` as the earliest timer."""
        self.clock.batch_begins(with_control_rows=with_control_rows)
        self.stores.timer_ms = timer_ms

    def run_tick(self, *, answer: str | None) -> None:
        """Run a batch with control rows that asks for the query; `answer` is None if the answer is
        gone."""
        self.run_batch(with_control_rows=True)
        assert self.clock.asks_for_query()
        self.stores.query = answer


@pytest.fixture
def script() -> ScriptedClock:
    return ScriptedClock()


def test_the_first_batch_asks_for_the_query_and_one_tick_logs_it(script: ScriptedClock) -> None:
    first = ClockOffset(1, None)
    assert [script.ask(FIRST) for _ in range(3)] == [first] * 3
    script.run_tick(answer="query")
    assert script.ask(first) == ClockOffset(2, "query")
    script.run_batch(with_control_rows=True)
    assert not script.clock.asks_for_query()
    assert script.ask(ClockOffset(2, "query")) == ClockOffset(2, "query")


def test_an_answer_that_was_deleted_before_the_clock_looked_is_asked_for_again(
    script: ScriptedClock,
) -> None:
    assert script.ask(FIRST) == ClockOffset(1, None)
    script.run_tick(answer=None)
    assert [script.ask(ClockOffset(1, None)) for _ in range(3)] == [ClockOffset(2, None)] * 3
    script.run_tick(answer="query")
    assert script.ask(ClockOffset(2, None)) == ClockOffset(3, "query")
    script.run_batch(timer_ms=99_000)
    assert script.ask(ClockOffset(3, "query")) == ClockOffset(4, "query")


def test_a_query_that_reads_no_control_rows_ticks_once_after_each_batch_of_rows(
    script: ScriptedClock,
) -> None:
    last = FIRST
    ticks = []
    for _ in range(3):
        for _ in range(10):
            asked = script.ask(last)
            if asked != last:
                script.run_tick(answer=None)
            last = asked
        ticks.append(last.tick)
        script.run_batch()
    assert ticks == [2, 3, 4]


def test_a_store_that_does_not_answer_counts_as_no_answer_of_a_task(script: ScriptedClock) -> None:
    assert script.ask(FIRST) == ClockOffset(1, None)
    script.run_tick(answer="query")
    script.stores.is_down = True
    for _ in range(5):
        assert script.ask(ClockOffset(1, None)) == ClockOffset(1, None)
        script.now += 5
    script.stores.is_down = False
    assert script.ask(ClockOffset(1, None)) == ClockOffset(2, "query")


def test_a_restart_that_does_not_know_the_query_ticks_once_to_ask_for_it(
    script: ScriptedClock,
) -> None:
    last = ClockOffset(4, None)
    assert script.ask(last) == ClockOffset(5, None)
    script.run_batch()
    assert script.clock.asks_for_query()
    script.stores.query = "query"
    assert script.ask(ClockOffset(5, None)) == ClockOffset(6, "query")


def test_it_reads_once_a_batch_and_ticks_when_the_timer_is_due(script: ScriptedClock) -> None:
    script.run_batch(timer_ms=100_500)
    assert [script.ask(KNOWN) for _ in range(40)] == [KNOWN] * 40
    assert script.stores.reads == 1
    script.now = 100.5
    assert script.ask(KNOWN) == ClockOffset(8, "query")
    script.run_batch(timer_ms=None)
    assert [script.ask(ClockOffset(8, "query")) for _ in range(2)] == [ClockOffset(8, "query")] * 2
    assert script.stores.reads == 2


def test_when_all_available_is_read_what_is_due_later_waits_for_the_next_run(
    script: ScriptedClock,
) -> None:
    script.clock.stop_at_now()
    script.now = 160.0
    script.run_batch(timer_ms=100_001)
    assert script.ask(KNOWN) == KNOWN
    script.run_batch(timer_ms=100_000)
    assert script.ask(KNOWN) == ClockOffset(8, "query")


def test_in_event_time_a_tick_needs_a_new_watermark_so_a_query_that_ends_does_end() -> None:
    script = ScriptedClock(in_event_time=True)
    script.clock.stop_at_now()
    script.stores.watermarks = (40, 90)
    script.run_batch(timer_ms=50)
    assert script.ask(KNOWN) == ClockOffset(8, "query")
    script.stores.watermarks = (90, 90)
    script.run_batch(timer_ms=50, with_control_rows=True)
    assert script.ask(ClockOffset(8, "query")) == ClockOffset(8, "query")


def test_each_outage_of_a_store_is_told_once_and_the_store_is_tried_again(
    script: ScriptedClock, caplog: pytest.LogCaptureFixture
) -> None:
    last = KNOWN
    for outage in (1, 2):
        script.run_batch(timer_ms=99_000)
        script.stores.is_down = True
        for _ in range(3):
            assert script.ask(last) == last
            script.now += 5
        assert [record.levelname for record in caplog.records] == ["WARNING"] * outage
        script.stores.is_down = False
        last = script.ask(last)
        assert last.tick == KNOWN.tick + outage
    assert "timers fire in batches with rows only" in caplog.text


def test_between_tries_of_a_store_nothing_is_read_and_nothing_ticks(script: ScriptedClock) -> None:
    script.run_batch(timer_ms=99_000)
    script.stores.is_down = True
    assert script.ask(KNOWN) == KNOWN
    script.stores.is_down = False
    script.now += 4.9
    assert script.ask(KNOWN) == KNOWN
    assert script.stores.reads == 0
