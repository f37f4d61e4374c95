"""Makes an epoch whole before Spark commits its batch.

A function that is given to foreachBatch runs on its batch what it likes: nothing, `take`, `show`,
two actions. Spark runs the partitions that these need, and commits the batch. Subtasks that did not
run would lack the batch's rows (I5). So when the function has returned, the store is asked which
subtasks have published their barrier of the epoch, and the partitions of the others are run; their
rows go nowhere. A subtask whose rows the function has seen does not run again: a processor that is
not deterministic would keep other values than the function saw.

    partition i of the batch is subtask i             if there is no shuffle behind the operator
    partition i of the batch <- shuffle <- subtasks   else: for any i Spark runs all that lack

A batch of which an operator has not run at all is run whole, for the sake of what else keeps state.

The driver looks for barriers. Where it sees nothing of the run, a task looks: the store may be one
that only executors reach.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from checkpoint_store.errors import CheckpointStoreError, StoreAccessError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint import Run
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import ConfigurationError
from spark_state.spark.operator.batch_identity import BatchIdentity
from spark_state.spark.operator.planned_operators import PlannedOperator, has_input

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorEpoch:
    """One epoch of one operator, as one run of its query writes it."""

    operator: PlannedOperator
    batch: BatchIdentity

    @property
    def store_url(self) -> str:
        """Where the operator's store is."""
        return self.operator.store_url(self.batch.query_id)


class EpochCompletion:
    """Completes the epochs of the operators of one DataFrame, in whatever queries it runs."""

    def __init__(self, operators: tuple[PlannedOperator, ...]) -> None:
        self._operators = operators
        self._runs: dict[tuple[str, str], Run] = {}
        self._driver_sees_stores = True

    def complete(self, batch: DataFrame, identity: BatchIdentity, plan: Any) -> None:
        """Let every subtask that did not run in this batch run. `plan`: the analysed plan of the
        batch, in the JVM. Raises ConfigurationError when Spark cannot run it, and what the run
        raises."""
        epochs = [OperatorEpoch(operator, identity) for operator in self._operators]
        lacking = [
            epoch
            for epoch in epochs
            if self._missing_as_driver_sees(epoch) != () and has_input(plan, epoch.operator)
        ]
        missing = self._missing(batch, lacking)
        if not any(missing):
            return
        parallelisms = [epoch.operator.parallelism for epoch in lacking]
        _run_partitions(batch, partitions_to_run(missing, parallelisms, _partitions(batch)))
        for epoch, subtasks in zip(lacking, self._missing(batch, lacking), strict=True):
            if subtasks:
                raise ConfigurationError(
                    f"batch {identity.epoch}: Spark does not run subtasks {list(subtasks)} of "
                    f"operator {epoch.operator.operator!r}, so its state would miss their rows: "
                    "what stands behind it in the query gives no rows, whatever it gets (a limit "
                    "of 0, say). Take that away, or the operator"
                )

    def _missing(self, batch: DataFrame, epochs: Sequence[OperatorEpoch]) -> list[tuple[int, ...]]:
        """Which subtasks have no barrier, for each of `epochs`."""
        seen = [self._missing_as_driver_sees(epoch) for epoch in epochs]
        unseen = [epoch for epoch, subtasks in zip(epochs, seen, strict=True) if subtasks is None]
        by_tasks = iter(_missing_as_tasks_see(batch, unseen))
        return [next(by_tasks) if subtasks is None else subtasks for subtasks in seen]

    def _missing_as_driver_sees(self, epoch: OperatorEpoch) -> tuple[int, ...] | None:
        """None if the driver sees nothing of the run: not yet, or not this store."""
        if not self._driver_sees_stores:
            return None
        try:
            return self._missing_in(open_object_store(epoch.store_url), epoch)
        except (CheckpointStoreError, OSError) as error:
            # What may pass is asked of a task, which tries again; the driver looks at next batch's.
            self._driver_sees_stores = not isinstance(error, StoreAccessError)
            if not self._driver_sees_stores:
                _log.warning("the driver cannot look into stores, tasks do it instead: %s", error)
            return None

    def _missing_in(self, store: ObjectStore, epoch: OperatorEpoch) -> tuple[int, ...] | None:
        checkpoints = CompletedCheckpointStore(store)
        known_run = self._runs.get((store.url, epoch.batch.run_id))
        if known_run is not None and not _without_barrier(checkpoints, epoch, known_run):
            return ()
        run = checkpoints.registered_run(epoch.batch.run_id)
        if run is None:
            return None
        self._runs[store.url, epoch.batch.run_id] = run
        return _without_barrier(checkpoints, epoch, run)


def partitions_to_run(
    missing: Sequence[tuple[int, ...]], parallelisms: Sequence[int], partitions: int
) -> list[int]:
    """Which of a batch's `partitions` let the `missing` subtasks run, operator by operator."""
    if any(len(subtasks) == most for subtasks, most in zip(missing, parallelisms, strict=True)):
        return list(range(partitions))
    chosen = {min(subtask, partitions - 1) for subtasks in missing for subtask in subtasks}
    return sorted(chosen) if partitions else []


def _missing_as_tasks_see(
    batch: DataFrame, epochs: Sequence[OperatorEpoch]
) -> list[tuple[int, ...]]:
    """Which subtasks have no barrier, for each of `epochs`."""
    if not epochs:
        return []
    context = batch.sparkSession.sparkContext
    return context.parallelize(epochs, 1).mapPartitions(_missing_subtasks).collect()


def _missing_subtasks(epochs: Iterable[OperatorEpoch]) -> Iterator[tuple[int, ...]]:
    yield from in_parallel(_missing_subtasks_of, epochs)


def _missing_subtasks_of(epoch: OperatorEpoch) -> tuple[int, ...]:
    store = RetryingObjectStore(
        open_object_store(epoch.store_url), epoch.operator.store_retry_seconds
    )
    checkpoints = CompletedCheckpointStore(store)
    run = checkpoints.registered_run(epoch.batch.run_id)
    if run is None:
        return tuple(range(epoch.operator.parallelism))
    return _without_barrier(checkpoints, epoch, run)


def _without_barrier(
    checkpoints: CompletedCheckpointStore, epoch: OperatorEpoch, run: Run
) -> tuple[int, ...]:
    return checkpoints.missing_subtasks(epoch.batch.epoch, run, epoch.operator.parallelism)


def _rows(batch: DataFrame) -> Any:
    """The RDD below a batch. The DataFrame above it may have been cached by the function."""
    return batch._jdf.queryExecution().logical().rdd()


def _partitions(batch: DataFrame) -> int:
    return int(_rows(batch).getNumPartitions())


def _run_partitions(batch: DataFrame, numbers: list[int]) -> None:
    """Run these partitions of a batch, and drop their rows."""
    context = batch.sparkSession.sparkContext
    gateway, jvm = context._gateway, context._jvm
    assert gateway is not None
    assert jvm is not None
    partitions = gateway.new_array(jvm.int, len(numbers))
    for index, number in enumerate(numbers):
        partitions[index] = number
    # A Scala set is the predicate of what it contains: the empty one keeps no row.
    no_row = jvm.scala.Predef.Set().empty()
    _rows(batch).filter(no_row).toJavaRDD().collectPartitions(partitions)
