"""Makes an epoch whole before Spark commits its batch.

A foreachBatch function may run anything on its batch: nothing, `take`, `show`, two actions. Spark
runs the partitions that these actions need, and commits the batch. The state of the other subtasks
would miss the batch's rows (I5). So after the function has returned, this module reads from the
store which subtasks have published their barrier of the epoch, and runs the partitions of the
missing subtasks, dropping their rows. A subtask whose rows the function has seen does not run
again: a processor that is not deterministic would store other values than the function saw.

    partition i of the batch is subtask i             without a shuffle after the operator
    partition i of the batch <- shuffle <- subtasks   with a shuffle: any i makes Spark run all
                                                      missing subtasks

If an operator has not run at all, the whole batch runs, because Spark's own operators in the batch
may keep state, too.

The driver looks for barriers. If the driver sees no trace of the run, a task looks, because perhaps
only executors reach the store.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.errors import CheckpointStoreError, StoreAccessError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import ConfigurationError
from spark_state.spark.session.batch_identity import BatchIdentity
from spark_state.spark.session.planned_operators import PlannedOperator, has_input

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorEpoch:
    """An epoch of an operator, in a run of its query."""

    operator: PlannedOperator
    batch: BatchIdentity

    def opened_store(self) -> ObjectStore:
        """The operator's store. Raises StoreAccessError."""
        url = self.operator.store_url(self.batch.query_id)
        return open_object_store(url, self.operator.store_options)


class EpochCompletion:
    """Completes the epochs of a DataFrame's operators, in any query that runs the DataFrame."""

    def __init__(self, operators: tuple[PlannedOperator, ...]) -> None:
        self._operators = operators
        self._runs: dict[tuple[str, str], Run] = {}
        self._driver_sees_stores = True

    def complete(self, batch: DataFrame, identity: BatchIdentity, plan: Any) -> None:
        """Run every subtask that did not run in this batch. `plan`: the analysed plan of the batch,
        in the JVM. Raises ConfigurationError if Spark does not run a subtask, and the errors of the
        subtasks."""
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
        partitions = int(_rows(batch).getNumPartitions())
        _run_partitions(batch, partitions_to_run(missing, parallelisms, partitions))
        for epoch, subtasks in zip(lacking, self._missing(batch, lacking), strict=True):
            if subtasks:
                raise ConfigurationError(
                    f"batch {identity.epoch}: Spark does not run subtasks {list(subtasks)} of "
                    f"operator {epoch.operator.operator!r}, so its state would miss their rows: a "
                    "later step of the query drops all rows (a limit of 0, for example). Remove "
                    "that step, or the operator"
                )

    def _missing(self, batch: DataFrame, epochs: Sequence[OperatorEpoch]) -> list[tuple[int, ...]]:
        """The subtasks without a barrier, for each of `epochs`."""
        seen = [self._missing_as_driver_sees(epoch) for epoch in epochs]
        unseen = [epoch for epoch, subtasks in zip(epochs, seen, strict=True) if subtasks is None]
        by_tasks = iter(_missing_as_tasks_see(batch, unseen))
        return [next(by_tasks) if subtasks is None else subtasks for subtasks in seen]

    def _missing_as_driver_sees(self, epoch: OperatorEpoch) -> tuple[int, ...] | None:
        """The subtasks without a barrier; None if the driver sees no trace of the run, because the
        run has not begun, or because the driver cannot read the store."""
        if not self._driver_sees_stores:
            return None
        try:
            return self._missing_in(epoch.opened_store(), epoch)
        except (CheckpointStoreError, OSError) as error:
            # If the error may be temporary, a task looks for this batch only, with retries.
            self._driver_sees_stores = not isinstance(error, StoreAccessError)
            if not self._driver_sees_stores:
                _log.warning("the driver cannot read stores, so tasks do it instead: %s", error)
            return None

    def _missing_in(self, store: ObjectStore, epoch: OperatorEpoch) -> tuple[int, ...] | None:
        checkpoints = CompletedCheckpointStore(store)
        run_before = self._runs.get((store.url, epoch.batch.run_id))
        if run_before is not None and not _without_barrier(checkpoints, epoch, run_before):
            return ()
        run = checkpoints.runs.registered(epoch.batch.run_id)
        if run is None:
            return None
        self._runs[store.url, epoch.batch.run_id] = run
        return _without_barrier(checkpoints, epoch, run)


def partitions_to_run(
    missing: Sequence[tuple[int, ...]], parallelisms: Sequence[int], partitions: int
) -> list[int]:
    """The partitions of a batch that run the `missing` subtasks of each operator."""
    if any(len(subtasks) == most for subtasks, most in zip(missing, parallelisms, strict=True)):
        return list(range(partitions))
    chosen = {min(subtask, partitions - 1) for subtasks in missing for subtask in subtasks}
    return sorted(chosen) if partitions else []


def _missing_as_tasks_see(
    batch: DataFrame, epochs: Sequence[OperatorEpoch]
) -> list[tuple[int, ...]]:
    """The subtasks without a barrier, for each of `epochs`, from the view of a task."""
    if not epochs:
        return []
    context = batch.sparkSession.sparkContext
    missing = partial(in_parallel, _missing_subtasks_of)
    return context.parallelize(epochs, 1).mapPartitions(missing).collect()


def _missing_subtasks_of(epoch: OperatorEpoch) -> tuple[int, ...]:
    store = RetryingObjectStore(epoch.opened_store(), epoch.operator.store_retry_seconds)
    checkpoints = CompletedCheckpointStore(store)
    run = checkpoints.runs.registered(epoch.batch.run_id)
    if run is None:
        return tuple(range(epoch.operator.parallelism))
    return _without_barrier(checkpoints, epoch, run)


def _without_barrier(
    checkpoints: CompletedCheckpointStore, epoch: OperatorEpoch, run: Run
) -> tuple[int, ...]:
    return checkpoints.completion.missing_subtasks(
        epoch.batch.epoch, run, epoch.operator.parallelism
    )


def _rows(batch: DataFrame) -> Any:
    """The RDD of a batch. If the function has cached the DataFrame, the RDD does not read the
    cache."""
    return batch._jdf.queryExecution().logical().rdd()


def _run_partitions(batch: DataFrame, numbers: list[int]) -> None:
    """Run these partitions of a batch, and drop their rows."""
    context = batch.sparkSession.sparkContext
    gateway, jvm = context._gateway, context._jvm
    assert gateway is not None
    assert jvm is not None
    partitions = gateway.new_array(jvm.int, len(numbers))
    for index, number in enumerate(numbers):
        partitions[index] = number
    # A Scala set is also a predicate, true for its elements: the empty set keeps no row.
    no_row = jvm.scala.Predef.Set().empty()
    _rows(batch).filter(no_row).toJavaRDD().collectPartitions(partitions)
