"""Subtasks of an operator without Spark: sessions of state hosts over a store in a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.state_reader import open_store
from spark_state.checkpointing.restore_plan import Handles
from spark_state.executor import HostSettings
from spark_state.key_group_hash import key_groups_of
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.handles import record_states
from spark_state.processor.input.epoch_inputs import EpochInputs
from spark_state.processor.input.epoch_time import no_time
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.processor.pickles import dumps
from spark_state.processor.processor_api import ROW_API, ProcessorApi
from spark_state.processor.processor_run import ProcessorSpec, RunPlan
from spark_state.processor.schemas import ParsedSchemas
from spark_state.processor.timed_steps import timers_of
from spark_state.spark.queries.operator_starts import (
    StoreProgress,
    WayBack,
    reached_in_store,
    take_back_in_store,
)
from spark_state.subtasks import store_session
from spark_state.subtasks.epoch_request import (
    CheckpointSettings,
    EpochRequest,
    EpochTask,
    OperatorSpec,
    OperatorStart,
    SentOperator,
    SentRequest,
)
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.store_session import StoreSession
from spark_state.subtasks.subtask_backends import SubtaskBackends
from spark_state.subtasks.subtask_session import SubtaskSession
from tests.support.processors.processors import RunningTotals
from tests.support.stores.fake_object_store import FakeTime

KEY_COLUMNS = KeyColumns(("key",), (pa.string(),), ("string",))
KEY_SCHEMA = StructType([StructField("key", StringType())]).json()
OUTPUT = pa.schema([("key", pa.string()), ("rows", pa.int64()), ("total", pa.int64())])
Totals = dict[str, tuple[int, int]]
_SETTINGS = {"checkpoints": CheckpointSettings(), "hosts": HostSettings(per_executor=1)}


def _struct(schema: StructType | str, _owner: str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    types = {"bigint": LongType(), "string": StringType()}
    fields = [part.split() for part in schema.split(",")]
    return StructType([StructField(field, types[kind]) for field, kind in fields])


SCHEMAS = ParsedSchemas(_struct)
"""Parses schemas, or DDL text of bigint and string fields, without a Spark session."""


def operator(
    folder: Path,
    processor: Any = None,
    time_mode: str = "None",
    api: ProcessorApi = ROW_API,
    **changes: Any,
) -> OperatorSpec:
    """A spec of `RunningTotals` (or of `processor` in `api`) whose stores are below `folder`.
    `changes`: fields of OperatorSpec, CheckpointSettings and HostSettings."""
    settings: dict[str, Any] = {}
    for group, default in _SETTINGS.items():
        names = {field.name for field in fields(default)} & changes.keys()
        settings[group] = replace(default, **{name: changes.pop(name) for name in names})
    chosen = RunningTotals() if processor is None else processor
    pickled_processor = dumps(chosen)
    states = record_states(chosen, SCHEMAS, time_mode, api.handle_type)
    spec = OperatorSpec(
        operator="totals",
        plan_id="plan",
        store_root=str(folder),
        parallelism=1,
        max_parallelism=8,
        key_schema_json="{}",
        processor=ProcessorSpec(
            pickled_processor=pickled_processor,
            run_plan=RunPlan(
                EpochInputs(InputLayout(("key", "value"), (0,))),
                api.steps(time_mode, states.keyed),
                api.row_form,
                api.handle_type,
                no_time,
            ),
            key_columns=KEY_COLUMNS,
            states=(*states.keyed, *timers_of(time_mode)),
            output_schema=OUTPUT,
            spool_bytes=1 << 20,
            operator_states=states.operator,
            deleted_states=states.deleted,
        ),
        **settings,
    )
    return replace(spec, **changes)


def table_of(rows: Sequence[tuple[str, int]], max_parallelism: int) -> pa.Table:
    keys = pa.array([key for key, _ in rows], pa.string())
    values = pa.array([value for _, value in rows], pa.int64())
    columns: list[Any] = [
        keys,
        values,
        pa.array(key_groups_of([keys], ["string"], max_parallelism)),
    ]
    return pa.Table.from_arrays(columns, ["key", "value", "_cowstate_key_group"])


def take_back(
    folder: Path, checkpoint: str, committed: int, seen: StoreProgress | None = None
) -> None:
    """Take the query back to the batch after `committed`, as the query's driver does at the
    start."""
    url = str(folder / "query" / "totals")
    seen = seen or reached_in_store(url, 1.0, {}, checkpoint)
    way_back = WayBack(checkpoint, committed, is_under_way=False, seen=seen, must_have=committed)
    take_back_in_store(url, 1.0, {}, way_back)


def stored_totals(store: Path, version: int | None = None) -> Totals:
    """The state of RunningTotals in a store after an epoch; None: the newest."""
    rows = open_store(str(store), state="totals").read(version).to_pylist()
    return {row["key"]: (row["rows"], row["total"]) for row in rows}


def use_store(patch: pytest.MonkeyPatch, store: ObjectStore, retry_seconds: float = 0) -> None:
    """Let hosts open this store. Retries of failed calls take no time. Nobody keeps house: the
    sweep would run beside the epochs, and take all objects for old."""

    def retrying(store: ObjectStore, _: float) -> RetryingObjectStore:
        passing = FakeTime()
        # A shorter wait would not change a clock value of this size.
        return RetryingObjectStore(
            store, retry_seconds, passing, lambda wait: passing.sleep(max(wait, 0.001))
        )

    patch.setattr(store_session, "open_object_store", lambda url, storage_options=None: store)
    patch.setattr(store_session, "RetryingObjectStore", retrying)
    patch.setattr(StoreSession, "housekeep", lambda *_: None)


@dataclass(slots=True)
class Host:
    """One host process's session of one subtask. Several hosts may serve one subtask."""

    spec: OperatorSpec
    subtask: int = 0
    run_id: str = "run-1"
    session: SubtaskSession | None = None
    maintenance: Maintenance | None = None
    report: EpochReport | None = None
    backends: SubtaskBackends = field(default_factory=SubtaskBackends)
    rows_per_batch: int = 10_000
    start: OperatorStart | None = None

    def request(self, epoch: int, attempt: int) -> EpochRequest:
        task = EpochTask(
            query_id="query",
            run_id=self.run_id,
            epoch=epoch,
            subtask=self.subtask,
            attempt=attempt,
            start=self.start,
        )
        return EpochRequest(self.spec, task, ())

    def sent(self, epoch: int, attempt: int) -> SentRequest:
        """The request of `request` as a task sends it."""
        return SentRequest(SentOperator.of(self.spec), self.request(epoch, attempt).task, ())

    def open(self, maintenance: Maintenance) -> Host:
        self.close()
        request = self.request(0, 0)
        self.session = SubtaskSession(
            request, StoreSession(request, maintenance), maintenance, self.backends
        )
        self.maintenance = maintenance
        return self

    def close(self) -> None:
        """Give up the state, and the local files of the state."""
        if self.session is not None:
            self.session.close()
            self.session = None
        self.backends.close()

    def finish_maintenance(self) -> None:
        """Wait for running snapshots and for running housekeeping of the store."""
        assert self.session is not None
        assert self.maintenance is not None
        url = self.session._store.url
        for threads in (self.maintenance.snapshots, self.maintenance.housekeeping):
            threads.submit(url, int).result()

    @property
    def checkpoints(self) -> CompletedCheckpointStore:
        """The checkpoints of the host's store."""
        assert self.session is not None
        return self.session._store.checkpoints

    @property
    def handles(self) -> Handles:
        """The files whose content equals the current state."""
        assert self.session is not None
        handles = self.session.state.handles
        assert handles is not None
        return handles

    def epoch(
        self,
        epoch: int,
        rows: list[tuple[str, int]],
        attempt: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> Totals:
        """Run an epoch with the subtask's part of `rows`. Returns the output."""
        return self.run(epoch, self.own(table_of(rows, self.spec.max_parallelism)), attempt, check)

    def own(self, table: pa.Table) -> pa.Table:
        """The table's rows that belong to the subtask."""
        assert self.session is not None
        mine = [group in self.session.key_groups for group in table.column(2).to_pylist()]
        return table.filter(pa.array(mine, pa.bool_()))

    def own_key(self, key: str) -> bool:
        """True if a key belongs to the subtask."""
        return self.own(table_of([(key, 0)], self.spec.max_parallelism)).num_rows == 1

    def run(
        self,
        epoch: int,
        table: pa.Table,
        attempt: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> Totals:
        """Run an epoch over this table. Returns the output."""
        assert self.session is not None
        request = self.request(epoch, attempt or epoch + 1)
        accepted = self.session.accept(request, check)
        with closing(self.session.receive(request)) as received:
            for batch in table.to_batches(max_chunksize=self.rows_per_batch):
                received.add(batch)
            with self.session.run(accepted, received.all()) as durable:
                pass
        self.report = durable.report
        with durable.output as spool:
            return {
                row["key"]: (row["rows"], row["total"])
                for batch in spool.read()
                for row in batch.to_pylist()
            }


OpenHost = Callable[..., Host]
