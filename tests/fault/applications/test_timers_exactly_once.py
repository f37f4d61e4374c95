"""Timers, lists, maps and time to live change state exactly once while state hosts are killed."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import spark_state
from checkpoint_store.state_reader import open_store
from tests.fault.applications.test_exactly_once import hosts_of
from tests.spark.input.test_time_modes import TimedStream
from tests.support.processors.timed_accounts import KeepsAccount
from tests.support.provider.provider_jobs import configured

pytestmark = [pytest.mark.spark, pytest.mark.fault]

BATCHES, KEYS, KILLS = 12, 40, 5
OUTPUT = "key string, rows bigint, total bigint"


class GappedSessions(KeepsAccount):
    """A processor that closes a session 2 s of event time after its last row, or 300 ms after its
    last batch, and counts the events of each key."""

    told_names = ("rows", "registered", "deleted", "fired", "closed")
    open_schema = "at_ms bigint"

    def __init__(self, ttl_ms: int | None = None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._seen = handle.getMapState("seen", "at_ms bigint", "n bigint", self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        times = [row.value for row in rows]
        self._open.appendList([(at_ms,) for at_ms in times])
        for at_ms in times:
            self._seen.updateValue((at_ms,), (1,))
        told = self.told()
        told["rows"] += len(times)
        if self._ttl_ms is None:
            ends_ms = max(times) + 2_000
        else:
            ends_ms = timerValues.getCurrentProcessingTimeInMs() + 300
        self.set_timer(ends_ms, told)
        self.tell(told)
        return iter([])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        told = self.close_all()
        yield Row(key=key[0], rows=told["rows"], total=told["closed"])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> TimedStream:
    fed = TimedStream(spark, tmp_path)
    chance = random.Random(11)
    for batch in range(BATCHES):
        # Event times of a batch are within the delay of the watermark: no row is late.
        fed.feed_all(
            [
                [
                    (f"key{chance.randrange(KEYS)}", 10_000 * (batch + 1) + chance.randrange(9_000))
                    for _ in range(60)
                ]
            ]
        )
    return fed


def planned(stream: TimedStream, time_mode: str, ttl_ms: int | None) -> DataFrame:
    grouped = stream.watermarked().groupBy("key")
    return spark_state.transform_with_state(
        grouped, GappedSessions(ttl_ms), OUTPUT, "update", time_mode, name="sessions"
    )


@contextmanager
def hosts_being_killed(stream: TimedStream, seed: int) -> Iterator[list[int]]:
    """Kill a state host in each of some random batches; yield the pids killed so far."""
    chance, killed, ends = random.Random(seed), list[int](), threading.Event()
    # No kill waits for the last batches, so that the query still runs when its host is killed.
    batches = sorted(chance.sample(range(BATCHES - 4), KILLS))

    def kill() -> None:
        for batch in batches:
            while stream.committed() < batch or not (hosts := hosts_of(stream.spark)):
                if ends.wait(0.01):
                    return
            ends.wait(chance.uniform(0, 0.1))
            host = chance.choice(hosts)
            with suppress(psutil.NoSuchProcess):
                host.send_signal(signal.SIGKILL)
                killed.append(host.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ends.set()
        thread.join()


def run_while_hosts_are_killed(stream: TimedStream, time_mode: str, ttl_ms: int | None) -> int:
    """Run the query again and again until its normal end. Return the number of killed hosts."""
    with hosts_being_killed(stream, seed=5) as killed:
        for _ in range(KILLS):
            with suppress(StreamingQueryException):
                stream.run(planned(stream, time_mode, ttl_ms))
                return len(killed)
    stream.run(planned(stream, time_mode, ttl_ms))
    return len(killed)


def states_of(stream: TimedStream) -> dict[str, list[Any]]:
    url = str(next(Path(stream.store()).parent.glob("sessions")))
    return {
        name: sorted(repr(in_order(row)) for row in open_store(url, state=name).read().to_pylist())
        for name in ("told", "open", "ends", "seen")
    }


def in_order(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the entries of its map sorted, because the order of entries depends on the
    files."""
    if "map_value" in row:
        return {**row, "map_value": sorted(row["map_value"], key=repr)}
    return row


def told_of(stream: TimedStream) -> dict[str, dict[str, int]]:
    url = str(next(Path(stream.store()).parent.glob("sessions")))
    rows: list[dict[str, Any]] = open_store(url, state="told").read().to_pylist()
    return {row.pop("key"): row for row in rows}


def test_in_event_time_killed_hosts_change_no_state_and_no_timer(stream: TimedStream) -> None:
    assert run_while_hosts_are_killed(stream, "EventTime", None)
    undisturbed = TimedStream(stream.spark, stream.folder / "undisturbed")
    undisturbed.input = stream.input
    with configured(stream.spark, {"spark.cowstate.parallelism": "3"}):
        undisturbed.run(planned(undisturbed, "EventTime", None))
    assert states_of(stream) == states_of(undisturbed)
    told = told_of(stream)
    assert sum(row["rows"] for row in told.values()) == len(stream.fed)
    assert sum(row["fired"] for row in told.values()) > 10


def test_in_processing_time_each_timer_fires_once_and_what_is_old_expires(
    stream: TimedStream,
) -> None:
    assert run_while_hosts_are_killed(stream, "ProcessingTime", 50)
    # Timers that became due at the end fire in a later run, as in Spark.
    stream.run(planned(stream, "ProcessingTime", 50))
    rows_of_key: dict[str, int] = {}
    for key, _ in stream.fed:
        assert key is not None
        rows_of_key[key] = rows_of_key.get(key, 0) + 1
    told = told_of(stream)
    assert {key: row["rows"] for key, row in told.items()} == rows_of_key
    for row in told.values():
        assert row["registered"] == row["deleted"] + row["fired"]
        assert row["closed"] == row["rows"]
    states = states_of(stream)
    assert (states["open"], states["ends"], states["seen"]) == ([], [], [])
