"""Processors give the same results in PySpark's runner, in Spark's operator and in cowstate.

All three engines get the same random rows. In each batch the engines must emit the same rows, in
order for each key, and end with the same values, lists, map entries and timers. The queries are
stopped and started again. Cowstate's queries change the parallelism and the backend each time. Now
and then a savepoint replaces cowstate's store.

Most processors are random, too: see tests/support/processors/scripted_processor.py. Some runs are a
second attempt, after a processor raised an error in the middle of a batch. The seed in a test's
name gives the same processor and rows again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from checkpoint_store import read_progress
from tests.spark.input.test_time_modes import TimedStream
from tests.support.processors.kept_contents import (
    in_checkpoint,
    in_store,
    timers_in_checkpoint,
    timers_in_store,
)
from tests.support.processors.scripted_processor import (
    OUTPUT,
    STATES,
    Output,
    ScriptedInOrder,
    ScriptedState,
    random_script,
    watermark,
    year_2100,
)
from tests.support.processors.tws_runner import TwsRunner
from tests.support.provider.provider_jobs import PROVIDER_KEY, ROCKSDB, configured

pytestmark = pytest.mark.spark

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]
LINES = 97
"""The number of row values with the same event time."""
KEYS = [None, "", "ä", *(f"key{number}" for number in range(37))]
DELAY_MS = 5
LONGEST = 6
TIMERS = {"EventTime": "$eventTimers", "ProcessingTime": "$procTimers"}
NOW_MS = 1_700_000_000_000
INSTANT_MS, DAY_MS = 1, 86_400_000

ByKey = dict[str | None, list[Output]]
Input = tuple[str | None, int]


@pytest.fixture(scope="module", autouse=True)
def few_warnings(spark: SparkSession) -> Iterator[None]:
    """Silence the warnings of Spark's operator about each missing value."""
    spark.sparkContext.setLogLevel("ERROR")
    yield
    spark.sparkContext.setLogLevel("WARN")


Operator = Callable[[Any, StatefulProcessor, str], DataFrame]


@dataclass(frozen=True)
class TimedBatch:
    """The rows of a batch. Spark drops the rows in `late`. `watermark_ms`: the batch's
    watermark."""

    watermark_ms: int
    rows: list[Input]
    late: list[Input]


@dataclass
class Timeline:
    """Random batches of rows (key, value), the same for all engines.

    A row's event time is its value divided by LINES. The watermark is DELAY_MS behind the latest
    event time. Each row is either after the watermark of its batch, or not after the watermark of
    the batch before. A row between both watermarks would be late only if the batch before had no
    rows, and engines differ in when they run such empty batches.
    """

    chance: random.Random
    watermark_ms: int = 0
    before_ms: int = 0
    latest_ms: int = 0

    def batch(self) -> TimedBatch:
        """The next batch."""
        chance = self.chance
        keys = chance.sample(KEYS, chance.randint(len(KEYS) // 2, len(KEYS)))
        rows = [
            self._row(key, self.watermark_ms + chance.randint(1, 20))
            for key in keys
            for _ in range(chance.randint(1, 3))
        ]
        late = [
            self._row(key, chance.randint(0, self.before_ms))
            for key in chance.sample(KEYS, len(KEYS) // 4)
        ]
        batch = TimedBatch(self.watermark_ms, rows, late if self.before_ms else [])
        self.latest_ms = max(self.latest_ms, *(value // LINES for _, value in rows))
        self.before_ms = self.watermark_ms
        self.watermark_ms = max(self.watermark_ms, self.latest_ms - DELAY_MS)
        return batch

    def _row(self, key: str | None, at_ms: int) -> Input:
        return key, at_ms * LINES + self.chance.randrange(LINES)


class Query(TimedStream):
    """A query on one engine, with several processors in turn."""

    def __init__(self, spark: SparkSession, folder: Path, operator: Operator) -> None:
        super().__init__(spark, folder)
        self._operator = operator
        self._output: dict[int, list[Output]] = {}
        self._backends = cycle(("heap", "rocksdb"))
        self._moves = cycle((True, True, False))
        self.last_epoch = -1

    def start(self, processor: StatefulProcessor, mode: str, parallelism: int) -> None:
        """Run until all rows are processed, or fail."""
        at = F.timestamp_millis(F.expr(f"value div {LINES}"))
        rows = self.source().withColumn("at", at).withWatermark("at", f"{DELAY_MS} milliseconds")
        backend = next(self._backends)
        if self._operator is on_cowstate and next(self._moves):
            self.move_state()
        settings = {
            PROVIDER_KEY: ROCKSDB,
            "spark.cowstate.parallelism": str(parallelism),
            "spark.cowstate.backend": backend,
            "spark.cowstate.minEpochsForSnapshot": "2",
        }
        with configured(self.spark, settings):
            self.run(self._operator(rows.groupBy("key"), processor, mode))

    def move_state(self) -> None:
        """Replace the store with a store made from a savepoint."""
        if not self.committed():
            return
        saved = self.folder / f"saved-{uuid4()}"
        store = self.store()
        epochs = (done.epoch for done in read_progress(str(store), epochs=1_000))
        last = max(epoch for epoch in epochs if epoch < self.committed())
        spark_state.savepoint(str(store), str(saved), epoch=last)
        shutil.rmtree(store)
        spark_state.restore(str(saved), str(store))

    def keep(self, batch: DataFrame, epoch: int) -> None:
        """Keep the output of a batch: see Stream."""
        rows = [tuple(row) for row in batch.collect()]
        if rows:
            self._output[epoch] = rows

    def taken_output(self) -> list[list[Output]]:
        """The non-empty outputs of batches since the last call. Empty batches do not count, because
        batches without rows depend on the engine."""
        taken = [rows for _, rows in sorted(self._output.items())]
        self.last_epoch = max(self._output, default=self.last_epoch)
        self._output.clear()
        return taken


def on_spark(grouped: Any, processor: StatefulProcessor, mode: str) -> DataFrame:
    output: DataFrame = grouped.transformWithState(processor, OUTPUT, "update", mode)
    return output


def on_cowstate(grouped: Any, processor: StatefulProcessor, mode: str) -> DataFrame:
    return spark_state.transform_with_state(grouped, processor, OUTPUT, "update", mode)


class FailingRun(NamedTuple):
    """A run that fails at a row or timer (see Scripted), and cowstate's parallelism."""

    at: tuple[str | None, int]
    parallelism: int


def random_failure(
    chance: random.Random, expected: list[list[Output]], parallelism: int
) -> FailingRun:
    """Draw a failure at a row or timer that is known to come."""
    key, number, *_ = chance.choice(chance.choice([rows for rows in expected if rows]))
    return FailingRun((key, number), parallelism)


class Engines:
    """The same runs on three engines: `runner`, `theirs` and `ours`.

    `processor` makes a processor from the arguments that differ between runs.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, mode: str, processor: Callable[..., Any]
    ) -> None:
        self.mode = mode
        self.processor = processor
        self.runner = TwsRunner(processor(), mode)
        self.theirs = Query(spark, folder / "spark", on_spark)
        self.ours = Query(spark, folder / "cowstate", on_cowstate)
        self.theirs.input = self.ours.input

    def run(
        self,
        parallelism: int,
        expected: list[list[Output]],
        failure: FailingRun | None = None,
        **declared: Any,
    ) -> None:
        """Run the fed rows. With a failure, the run is the second attempt."""
        for query in (self.theirs, self.ours):
            if failure is not None:
                broken = self.processor(breaks_at=failure.at, **declared)
                with pytest.raises(StreamingQueryException, match="BrokenOffError"):
                    query.start(broken, self.mode, failure.parallelism)
            query.start(self.processor(**declared), self.mode, parallelism)
            wrong = {query.folder.name: differences(expected, query.taken_output())}
            assert wrong == {query.folder.name: []}

    def assert_same_contents(self, states: Sequence[ScriptedState]) -> None:
        """Assert that all engines have the same states, mostly non-empty, and the same timers."""
        spark, store, epoch = self.ours.spark, self.ours.store(), self.ours.last_epoch
        assert sum(bool(self.runner.state(state)) for state in states) > len(states) / 2
        for state in states:
            expected = self.runner.state(state)
            assert in_checkpoint(spark, self.theirs.checkpoint, state) == expected
            assert in_store(store, state, epoch) == expected
        if self.mode in TIMERS:
            expected = self.runner.timers()
            assert expected
            assert timers_in_checkpoint(spark, self.theirs.checkpoint) == expected
            assert timers_in_store(store, TIMERS[self.mode], epoch) == expected


def differences(expected: list[list[Output]], yielded: list[list[Output]]) -> list[Any]:
    """The differences in output, as (batch, key, expected, emitted)."""
    batches = zip_longest(filter(None, expected), yielded, fillvalue=[])
    return [
        (number, key, of_expected.get(key), of_yielded.get(key))
        for number, (of_expected, of_yielded) in enumerate(
            (by_key(first), by_key(second)) for first, second in batches
        )
        for key in {**of_expected, **of_yielded}
        if of_expected.get(key) != of_yielded.get(key)
    ]


def by_key(rows: Sequence[Output]) -> ByKey:
    yielded: ByKey = {}
    for row in rows:
        yielded.setdefault(row[0], []).append(row)
    return yielded


def in_order(batch: TimedBatch) -> list[Input]:
    return sorted(batch.rows, key=lambda row: row[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_in_event_time_all_three_yield_and_hold_the_same(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """The watermark, and so the firing of timers, follows from the rows."""
    chance = random.Random(seed)
    extra = ScriptedState("extra", chance.choice(("value", "list", "map")))
    script = random_script(chance, LINES, LONGEST, (*STATES, extra))
    make = partial(ScriptedInOrder, script, watermark, states=STATES)
    engines = Engines(spark, tmp_path, "EventTime", make)
    timeline = Timeline(chance)
    # A deleted state begins empty, with the same kind as before: Spark refuses a map after a value
    # or a list, and the reverse.
    for parallelism, fails_at, declared in (
        (3, None, {"states": (*STATES, extra)}),
        (1, 2, {"deleted": ("extra",)}),
        (4, 4, {"states": (*STATES, extra)}),
    ):
        batches = [timeline.batch() for _ in range(chance.randint(1, 2))]
        engines.ours.feed_all([batch.rows + batch.late for batch in batches])
        engines.runner.restart(make(**declared))
        expected = [engines.runner.epoch(in_order(b), b.watermark_ms) for b in batches]
        # The watermark moves once more, in a batch without rows.
        expected.append(engines.runner.epoch([], timeline.watermark_ms))
        failure = random_failure(chance, expected, fails_at) if fails_at else None
        engines.run(parallelism, expected, failure, **declared)
    engines.assert_same_contents((*STATES, extra))


@pytest.mark.parametrize("seed", SEEDS)
def test_with_time_to_live_all_three_yield_and_hold_the_same(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """The batches' times differ, so the processors do not see the times, and the times decide
    nothing. A value with a life of a day outlives the test; a value with a life of a millisecond is
    gone in the next batch. Timers are for the past and fire in their batch, or for the year 2100.
    """
    chance = random.Random(seed)
    states = [
        ScriptedState(f"{kind}_{name}", kind, ttl_ms)
        for kind in ("value", "list", "map")
        for name, ttl_ms in (("kept", None), ("day", DAY_MS), ("instant", INSTANT_MS))
    ]
    instants = [state for state in states if state.ttl_ms == INSTANT_MS]
    script = random_script(chance, LINES, LONGEST, states)
    make = partial(ScriptedInOrder, script, year_2100, states=states)
    engines = Engines(spark, tmp_path, "ProcessingTime", make)
    timeline = Timeline(chance)
    # With availableNow Spark's query would not end, and cowstate would run another batch for a
    # timer that a timer has registered for the past.
    engines.theirs.trigger = engines.ours.trigger = {"once": True}
    for number, parallelism in enumerate((3, 1, 4, 4)):
        batch = timeline.batch()
        engines.ours.feed_all([batch.rows])
        engines.runner.forget(instants)
        expected = [engines.runner.epoch(in_order(batch), NOW_MS)]
        failure = random_failure(chance, expected, parallelism) if number == 2 else None
        engines.run(parallelism, expected, failure)
    engines.assert_same_contents(states)
