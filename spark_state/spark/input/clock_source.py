"""The clock as a streaming source. The source's rows are the control rows of an operator.

The source's process on the driver decides about ticks (see clock). A task reads one row for each
subtask. A union adds these rows to the keyed rows, so every subtask gets a row with the batch's
time, however few keys a batch has.

A task sends the query's id to the source's process by a marker: see clock_markers.

If the session turns off batches without rows (`spark.sql.streaming.noDataMicroBatches.enabled` is
false), the clock never ticks. The clock is still a source of the query, because a query cannot
change its sources at a restart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, StructField, StructType

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from checkpoint_store.errors import CheckpointStoreError, ObjectMissingError
from checkpoint_store.objects.deletion import time_of_store
from checkpoint_store.objects.named_object import put_if_absent
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.operators.clock_markers import CLOCKS, sweep_markers
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.checkpointing.watermarks import Policy
from spark_state.errors import ConfigurationError
from spark_state.processor.input.control_rows import control_key_group
from spark_state.spark.input.clock import Clock, ClockOffset
from spark_state.spark.input.keyed_input import KEY_GROUP_COLUMN
from spark_state.spark.session.batch_identity import QUERY
from spark_state.spark.session.worker_interpreter import stream_of
from spark_state.spark.session.worker_loading import LoadedInWorkers

_SUBTASK = "subtask"
_BATCHES_WITHOUT_ROWS_KEY = "spark.sql.streaming.noDataMicroBatches.enabled"


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """The facts about an operator that its clock needs. `policy`: Spark's policy for several
    watermarks, None if timers are in processing time; `stands_still`: True if the clock never
    ticks; `store_options`: options for the clients of stores."""

    store_root: str
    operator: str
    parallelism: int
    policy: Policy | None
    stands_still: bool = False
    store_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def options(self) -> dict[str, str]:
        # Spark does not show options that have this word in their names.
        return {"secretSettings": json.dumps(asdict(self))}

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> ClockSettings:
        return cls(**json.loads(options["secretSettings"]))

    def opened_store(self, directory: str) -> ObjectStore:
        """Open a store below the root."""
        return open_object_store(f"{self.store_root.rstrip('/')}/{directory}", self.store_options)


def with_control_rows(keyed: DataFrame, settings: ClockSettings) -> DataFrame:
    """The rows of `keyed`, and control rows when the clock ticks."""
    spark = keyed.sparkSession
    stands_still = spark.conf.get(_BATCHES_WITHOUT_ROWS_KEY) == "false"
    settings = replace(settings, stands_still=stands_still)
    ticks = stream_of(spark, ClockSource, settings.options())
    key_group = (F.lit(control_key_group(0)) - F.col(_SUBTASK)).cast("int")
    columns = [
        key_group if field.name == KEY_GROUP_COLUMN else F.lit(None).cast(field.dataType)
        for field in keyed.schema.fields
    ]
    return keyed.union(ticks.select(*columns))


class ClockSource(LoadedInWorkers, DataSource):
    """The data source of the clock."""

    @classmethod
    def name(cls) -> str:
        return "cowstate_clock"

    def schema(self) -> StructType:
        """The column of a control row: the number of the row's subtask."""
        return StructType([StructField(_SUBTASK, IntegerType(), nullable=False)])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A clock before its first tick."""
        return ClockReader(ClockSettings.of_options(self.options))


@dataclass
class ControlRows(InputPartition):
    """A partition with one control row for each subtask. `token`: the name of the object in which
    the task writes the query's id; None if the clock knows the id."""

    parallelism: int
    token: str | None


class ClockFiles:
    """The stores and markers that a clock reads. `token`: the name of the object in which a task
    writes the query's id."""

    def __init__(self, settings: ClockSettings) -> None:
        self.token = uuid4().hex
        self._settings = settings
        self._stores: dict[str, CompletedCheckpointStore] = {}

    def query_id(self) -> str | None:
        store = self._settings.opened_store(CLOCKS)
        try:
            query_id = store.get(self.token).decode()
        except ObjectMissingError:
            return None
        with suppress(CheckpointStoreError):  # queries can run without the right to delete
            store.delete([self.token])
        # The object is deleted, so the id would be lost if an error left this method.
        with suppress(CheckpointStoreError, OSError):
            sweep_markers(store, time_of_store(store, time.time()))
        return query_id

    def newest_times(self, query_id: str) -> Sequence[SubtaskTime]:
        if query_id not in self._stores:
            opened = self._settings.opened_store(f"{query_id}/{self._settings.operator}")
            self._stores[query_id] = CompletedCheckpointStore(opened)
        newest = self._stores[query_id].bases.newest_summaries()
        return [summary.time for summary in newest if summary.time is not None]


class ClockReader(LoadedInWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A clock with the methods that Spark calls. Offsets are ClockOffsets in JSON."""

    def __init__(self, settings: ClockSettings) -> None:
        self._settings = settings
        self._files = ClockFiles(settings)
        self._clock = Clock(self._files, settings.policy, time.time)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset before the first tick."""
        return asdict(ClockOffset(0, None))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the clock's time stand still from now on: the clock no longer ticks for timers of a
        later time."""
        self._clock.stop_at_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The newest offset: `start`, or the offset of a new tick."""
        _check(start)
        if self._settings.stands_still:
            return start
        return asdict(self._clock.offset_after(ClockOffset(**start)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition, however often the clock has ticked."""
        _check(start)
        _check(end)
        self._clock.batch_begins(with_control_rows=True)
        token = self._files.token if self._clock.asks_for_query() else None
        return [ControlRows(self._settings.parallelism, token)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Read the control rows, in a task of the query."""
        assert isinstance(partition, ControlRows)
        if partition.token is not None:
            task = TaskContext.get()
            query_id = None if task is None else task.getLocalProperty(QUERY)
            assert query_id is not None, "a source is read in a task of a query"
            clocks = self._settings.opened_store(CLOCKS)
            put_if_absent(clocks, partition.token, query_id.encode())
        for subtask in range(partition.parallelism):
            yield (subtask,)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the clock that a batch without control rows begins. Spark calls `commit` when any
        batch begins. If the batch has control rows, Spark calls `partitions` afterwards, and
        `partitions` tells the clock about the control rows."""
        self._clock.batch_begins(with_control_rows=False)


def _check(offset: dict[str, Any] | None) -> None:
    """Raise ConfigurationError for the offset of another source. Spark identifies a source only by
    its place in the offset log."""
    if offset is not None and "tick" not in offset:
        raise ConfigurationError(
            f"the clock of an operator finds the offset {json.dumps(offset)} of another source in "
            "its place of the offset log, so the query has other sources than its checkpoint, or "
            "in another order. If it was adopted, it has a source behind those of the operator: "
            "undo the adoption with cowstate adopt --revert, and start the query with a new "
            "checkpoint"
        )
