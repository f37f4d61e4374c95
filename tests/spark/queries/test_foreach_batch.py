"""Every epoch of an operator is whole, whatever a function of foreachBatch runs on its batches.

The oracle is a batch computation of the same input. The state is read from the store, because a
restart uses the state in the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from checkpoint_store import StoreAccessError
from checkpoint_store.objects.object_store import ObjectStore
from spark_state import BatchIdentityError
from spark_state.spark.queries import classic_queries, epoch_completion
from spark_state.spark.queries.epoch_completion import EpochCompletion
from spark_state.spark.queries.foreach_batch import watched
from tests.support.applications.streams import Stream, Totals, random_rows, totals_of
from tests.support.operators.subtasks import stored_totals
from tests.support.processors.processors import TOTALS_SCHEMA, FailingAt, RunningTotals

pytestmark = pytest.mark.spark

Act = Callable[[DataFrame], Any]


def nothing(batch: DataFrame) -> None:
    pass


def kept_in_part(batch: DataFrame) -> None:
    batch.persist().take(1)


def in_a_thread(batch: DataFrame) -> None:
    thread = InheritableThread(target=lambda: batch.limit(3).collect())
    thread.start()
    thread.join()


ACTS: dict[str, Act] = {
    "nothing": nothing,
    "take": lambda batch: batch.take(1),
    "show": lambda batch: batch.show(2),
    "first": lambda batch: batch.first(),
    "limit": lambda batch: batch.limit(2).collect(),
    "isEmpty": lambda batch: batch.isEmpty(),
    "count": lambda batch: batch.count(),
    "collect": lambda batch: batch.collect(),
    "persist": kept_in_part,
    "thread": in_a_thread,
    "sort": lambda batch: batch.orderBy("key").take(1),
    "rdd": lambda batch: batch.rdd.first() if not batch.isEmpty() else None,
}


class FunctionError(Exception):
    """Raised by a function after its action."""


@pytest.fixture
def parallelism(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Set the operators' parallelism, and unset it at the end."""
    key = "spark.cowstate.parallelism"
    yield lambda number: spark.conf.set(key, str(number))
    spark.conf.unset(key)


def state_of(stream: Stream, name: str = "RunningTotals", epoch: int | None = None) -> Totals:
    """The state of an epoch in an operator's store; None is the newest epoch."""
    (store,) = (path for path in stream.stores() if path.name == name)
    return stored_totals(store, epoch)


MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40)]


@pytest.mark.parametrize("seed", [0, *MORE_SEEDS])
def test_random_functions_leave_the_state_of_the_batch_computation(
    stream: Stream, parallelism: Callable[[int], None], seed: int
) -> None:
    chance = random.Random(seed)
    files: list[list[tuple[str, int]]] = []
    collected: dict[int, Totals] = {}
    for _ in range(3):
        parallelism(chance.randint(1, 4))
        for _ in range(3):
            files.append(random_rows(chance.random(), chance.choice((0, 5, 200)), keys=30))
            stream.feed(files[-1])
        fails_at = chance.choice((None, stream.committed() + 1))

        def sink(batch: DataFrame, epoch: int, fails_at: int | None = fails_at) -> None:
            for name in chance.choices(list(ACTS), k=chance.choice((0, 1, 1, 2))):
                result = ACTS[name](batch)
                if name == "collect":
                    collected[epoch] = {row.key: (row.rows, row.total) for row in result}
            if epoch == fails_at:
                raise FunctionError(f"epoch {epoch}")

        if fails_at is None:
            stream.run(sink=sink)
            assert state_of(stream) == totals_of(stream.fed)
        else:
            with pytest.raises(StreamingQueryException, match="FunctionError"):
                stream.run(sink=sink)
            assert stream.committed() == fails_at
    stream.run()
    assert state_of(stream) == totals_of(stream.fed)
    for epoch, rows in collected.items():
        totals = totals_of([row for file in files[: epoch + 1] for row in file])
        assert rows == {key: totals[key] for key, _ in files[epoch]}


def test_what_a_function_leaves_out_is_run_before_the_batch_is_committed(
    stream: Stream, parallelism: Callable[[int], None]
) -> None:
    """Each batch has the same rows and another action, and leaves a whole epoch."""
    parallelism(3)
    names = list(ACTS)
    rows = random_rows(1, count=100, keys=40)
    for _ in names:
        stream.feed(rows)
    stream.run(sink=lambda batch, epoch: ACTS[names[epoch]](batch))
    for epoch, name in enumerate(names):
        assert state_of(stream, epoch=epoch) == totals_of(rows * (epoch + 1)), name


class Stamping(RunningTotals):
    """Totals of a processor that is not deterministic: each run draws another total."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        drawn = uuid4().int >> 66
        self._totals.update((sum(1 for _ in rows), drawn))
        yield Row(key=key[0], rows=0, total=drawn)


def test_a_subtask_whose_rows_the_function_has_seen_does_not_run_again(
    stream: Stream, parallelism: Callable[[int], None]
) -> None:
    parallelism(4)
    stream.feed(random_rows(1, count=300, keys=60))
    seen: list[Row] = []
    stream.run(stream.operator(Stamping()), lambda batch, epoch: seen.extend(batch.take(1)))
    state = state_of(stream, "Stamping")
    assert len(state) == len(totals_of(stream.fed))
    assert [state[row.key][1] for row in seen] == [row.total for row in seen]


def test_a_subtask_that_fails_in_the_function_fails_the_batch_though_the_function_goes_on(
    stream: Stream,
) -> None:
    stream.feed([("a", 1), ("b", 1), ("c", 1), ("d", -1)])

    def swallow(batch: DataFrame, epoch: int) -> None:
        with suppress(Exception):
            batch.count()

    with pytest.raises(StreamingQueryException, match="a negative value"):
        stream.run(stream.operator(FailingAt(), name="totals"), swallow)
    assert stream.committed() == 0
    stream.run(stream.operator(name="totals"), lambda batch, epoch: None)
    assert state_of(stream, "totals") == totals_of(stream.fed)


def test_after_an_error_of_the_function_nothing_is_run(stream: Stream) -> None:
    stream.feed([("a", 1)])

    def fail(batch: DataFrame, epoch: int) -> None:
        raise FunctionError("before any action")

    with pytest.raises(StreamingQueryException, match="before any action"):
        stream.run(sink=fail)
    with pytest.raises(FileNotFoundError):
        stream.store()


def another_input(output: DataFrame) -> DataFrame:
    """Rows without an operator, in the columns of `output`."""
    rate = output.sparkSession.readStream.format("rate-micro-batch")
    numbers = rate.option("rowsPerBatch", 1).load()
    return numbers.selectExpr("cast(value as string) as key", "value as rows", "value as total")


def behind_a_wide_union(output: DataFrame) -> DataFrame:
    return output.repartition(2).union(another_input(output).repartition(1))


def behind_a_union(output: DataFrame) -> DataFrame:
    return output.union(another_input(output))


def behind_a_join_with_nothing(output: DataFrame) -> DataFrame:
    return output.join(output.sparkSession.createDataFrame([], "key string, name string"), "key")


def behind_another_operator(output: DataFrame) -> DataFrame:
    grouped = output.selectExpr("key", "rows as value").groupBy("key")
    return spark_state.transform_with_state(
        grouped, RunningTotals(), TOTALS_SCHEMA, "update", "None", name="second"
    )


@pytest.mark.parametrize(
    "around",
    [
        behind_a_wide_union,
        behind_a_union,
        behind_a_join_with_nothing,
        behind_another_operator,
    ],
)
def test_an_operator_is_completed_wherever_it_stands(
    stream: Stream,
    parallelism: Callable[[int], None],
    around: Callable[[DataFrame], DataFrame],
) -> None:
    parallelism(3)
    names = ["nothing", "take", "persist"]
    rows = random_rows(1, count=60, keys=30)
    for _ in names:
        stream.feed(rows)
    output = around(stream.operator(name="totals"))
    stream.run(output, lambda batch, epoch: ACTS[names[epoch]](batch))
    for epoch, name in enumerate(names):
        assert state_of(stream, "totals", epoch) == totals_of(rows * (epoch + 1)), name
    if around is behind_another_operator:
        second = {key: count for key, (count, _) in state_of(stream, "second").items()}
        assert second == dict.fromkeys(totals_of(rows), len(names))


def dropping_duplicates(output: DataFrame) -> DataFrame:
    """Add a stateful operator of Spark, which runs batches without input."""
    time = F.timestamp_seconds(F.col("rows") * 1000).alias("time")
    timed = output.select("*", time).withWatermark("time", "1 second")
    return timed.dropDuplicatesWithinWatermark(["key"])


def test_batches_without_input_have_nothing_to_complete(stream: Stream) -> None:
    for seed in range(2):
        stream.feed(random_rows(seed, count=60, keys=30))
    rows: list[int] = []

    def act_on_later_batches(batch: DataFrame, epoch: int) -> None:
        rows.append(batch.count() if epoch else -1)

    stream.run(dropping_duplicates(stream.operator()), act_on_later_batches)
    assert state_of(stream) == totals_of(stream.fed)
    assert len(rows) == 3, "there was a batch without input"


def test_a_batch_that_no_action_can_complete_fails_before_it_is_committed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.feed([("a", 1)])
    monkeypatch.setattr(classic_queries, "_refuse_dropped", lambda writer, plan, operators: None)
    with pytest.raises(StreamingQueryException, match="Spark does not run subtasks"):
        stream.run(stream.operator().limit(0), lambda batch, epoch: None, output_mode="append")
    assert stream.committed() == 0


def test_a_function_that_is_called_outside_of_its_query_is_refused_for_an_operator(
    spark: SparkSession,
) -> None:
    called: list[int] = []
    batch = spark.range(1)
    watched(lambda _, epoch: called.append(epoch), spark, None)(batch, 5)
    with pytest.raises(BatchIdentityError, match="PYSPARK_PIN_THREAD"):
        watched(lambda _, epoch: called.append(epoch), spark, EpochCompletion(()))(batch, 6)
    assert called == [5]


class _Unreachable:
    """A replacement of opening a store, which fails as for a driver without credentials."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, url: str, storage_options: Any) -> ObjectStore:
        self.asked += 1
        raise StoreAccessError(url, "no credentials")


def test_a_driver_that_cannot_reach_the_store_lets_tasks_look(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(3):
        stream.feed(random_rows(seed, count=60, keys=30))
    opened = _Unreachable()
    monkeypatch.setattr(epoch_completion, "open_object_store", opened)
    stream.run(sink=lambda batch, epoch: batch.count() if epoch == 1 else None)
    assert state_of(stream) == totals_of(stream.fed)
    assert opened.asked == 1
    assert "the driver cannot read stores" in caplog.text


def test_a_function_that_cowstate_does_not_see_is_named_as_the_cause_of_missing_epochs(
    stream: Stream,
) -> None:
    stream.feed(random_rows(1, count=60, keys=30))
    stream.run_unseen(lambda batch, epoch: None)
    stream.feed([("a", 1)])
    with pytest.raises(StreamingQueryException, match=r"holds no state of the epochs") as caught:
        stream.run_unseen(lambda batch, epoch: batch.count() and None)
    message = str(caught.value)
    # A hidden function looks like any other sink, so the advice for all sinks comes first.
    assert message.index("spark.cowstate.store") < message.index("foreachBatch")
