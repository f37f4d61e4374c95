"""Run of a processor over scripted rows, times and restarts, without Spark: for unit tests.

    with ScriptedOperator(
        Sessions(), rows="user string, page string", key="user", output="user string, pages long",
        time_mode="ProcessingTime",
    ) as operator:
        assert operator.batch([("ada", "home")], at=0) == []
        operator.restart(parallelism=3)
        assert operator.batch([], at=60_000) == [Row(user="ada", pages=1)]

The engine is the same as in production: after every batch, state goes to files in a folder, and a
restart reads the files. The test plays the part of Spark: the script has the rows of each batch,
and the time when the batch is planned.
"""

from __future__ import annotations

import datetime
import pickle
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from checkpoint_store.state_reader import open_store
from spark_state.errors import ConfigurationError
from spark_state.executor import HostSettings
from spark_state.frozen_keys import frozen
from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
from spark_state.processor.blocks import BlockSize
from spark_state.processor.handles import record_states
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import INITIAL_ROWS, EpochInputs, SideInput
from spark_state.processor.input.epoch_time import both_times, no_time, time_mode_named
from spark_state.processor.input.event_times import EventTimes
from spark_state.processor.pickles import dumps_processor
from spark_state.processor.processor_api import (
    ROW_API,
    ProcessorApi,
    by_key,
    check_has,
    in_arrow,
)
from spark_state.processor.processor_run import ProcessorSpec, RunPlan
from spark_state.processor.schemas import ParsedSchemas, arrow_schema, key_columns
from spark_state.processor.timed_steps import DUE_TIMERS, timers_of
from spark_state.subtasks.epoch_request import (
    CheckpointSettings,
    EpochRequest,
    EpochTask,
    OperatorSpec,
)
from spark_state.subtasks.maintenance import Maintenance
from spark_state.subtasks.store_session import StoreSession
from spark_state.subtasks.subtask_backends import SubtaskBackends
from spark_state.subtasks.subtask_session import SubtaskSession
from spark_state.testing.ddl_schemas import schema_of
from spark_state.testing.scripted_rows import KeyedRows

MAX_PARALLELISM = 16
_BLOCK = BlockSize(rows=10_000, bytes=64 << 20)
_OPERATOR, _QUERY = "operator-0", "scripted"
_INITIAL_COLUMN = "_cowstate_initial"


@dataclass(frozen=True, slots=True)
class _InitialState:
    """Rows of an initial state, as given by a test."""

    rows: KeyedRows
    given: tuple[Any, ...]

    @property
    def input(self) -> SideInput:
        """The position of the initial rows in a subtask's table."""
        return SideInput(INITIAL_ROWS, _INITIAL_COLUMN, self.rows.layout)


class ScriptedOperator:
    """Runs a processor of the row API or of the Arrow API, batch by batch, and keeps its state.

    - `rows`: schema of the rows, a StructType or DDL text. `key`: the key columns in `rows`.
      `output`: schema of the processor's output.
    - `time_mode`: "None", "ProcessingTime" or "EventTime", in upper or lower case as in Spark. For
      "EventTime", `watermark` is the column of the event time, and the delay of the watermark in
      milliseconds.

    The operator has one subtask until a call of `restart` with another parallelism. Raises
    ConfigurationError for wrong arguments, and the errors of planning the operator. Use the
    operator in a `with` statement, or close the operator.
    """

    def __init__(
        self,
        processor: StatefulProcessor | ArrowStatefulProcessor,
        *,
        rows: StructType | str,
        key: str | Sequence[str],
        output: StructType | str,
        time_mode: str = "None",
        watermark: tuple[str, int] | None = None,
    ) -> None:
        self._rows = KeyedRows.of("rows", rows, key)
        self._output = schema_of(output, "output")
        self._time_mode = time_mode_named(time_mode)
        self._check_watermark(watermark)
        self._event_times = _event_times(self._rows.schema, self._time_mode, watermark)
        self._initial: _InitialState | None = None
        self._processor = processor
        self._api = self._api_of(processor)
        self._api.check_processor(processor)
        self._folder = tempfile.TemporaryDirectory(prefix="cowstate-scripted-")
        self._maintenance = Maintenance()
        self._backends = SubtaskBackends()
        self._epoch, self._attempt, self._now_ms = 0, 0, 0
        self._sessions: list[SubtaskSession] = []
        self._run_id = ""
        self.restart(parallelism=1)

    def begin_with(
        self, given: Iterable[Any], *, rows: StructType | str, key: str | Sequence[str]
    ) -> None:
        """Give the processor an initial state. Call before the first batch. The first batch hands
        the initial rows to `handleInitialState` or `handleInitialBatch`, before the rows of the
        batch; no later batch does.

        `given`: tuples, Rows or dicts. `rows`: schema of `given`. `key`: the key columns in `rows`,
        of the types of the operator's key. Raises ConfigurationError after the first batch, for
        another key, and if the processor lacks the method.
        """
        if self._epoch:
            raise ConfigurationError("begin_with comes too late: the first batch has run")
        initial = KeyedRows.of("the initial state", rows, key)
        self._rows.check_same_key(initial)
        given_rows = tuple(given)
        initial.columns(given_rows)  # rows that do not fit are refused here, not in the first batch
        check_has(self._processor, self._api.initial_method, "an initial state")
        self._initial = _InitialState(initial, given_rows)
        self.restart()

    def batch(
        self, rows: Iterable[Any] = (), *, at: int | datetime.datetime | None = None
    ) -> list[Row]:
        """Run a batch, and return the output.

        `rows`: tuples, Rows or dicts. `at`: time when the batch is planned, in ms since 1970 or as
        a datetime; by default a second after the last batch. An exception of the processor is
        raised here and leaves the state unchanged: the next call runs the batch again.
        """
        self._now_ms = self._now_ms + 1_000 if at is None else _milliseconds(at)
        table = self._table(rows)
        output: list[Row] = []
        for subtask in range(len(self._sessions)):
            output += self._run(subtask, table)
        self._epoch += 1
        return output

    def restart(
        self,
        *,
        processor: StatefulProcessor | ArrowStatefulProcessor | None = None,
        parallelism: int | None = None,
    ) -> None:
        """Start the query again from the store, without the state in memory. `processor`: another
        processor, or another version of the processor. `parallelism`: another parallelism."""
        if processor is not None:
            self._api.check_processor(processor)
            if self._initial is not None and not self._epoch:
                check_has(processor, self._api.initial_method, "an initial state")
            self._processor = processor
        subtasks = len(self._sessions) if parallelism is None else parallelism
        if not 1 <= subtasks <= MAX_PARALLELISM:
            raise ConfigurationError(
                f"parallelism is {subtasks}; allowed are 1 to {MAX_PARALLELISM}"
            )
        self._spec = self._planned(subtasks)
        self._run_id = uuid4().hex
        store = StoreSession(self._request(0), self._maintenance)
        self._sessions = [
            SubtaskSession(self._request(subtask), store, self._maintenance, self._backends)
            for subtask in range(subtasks)
        ]

    def state(self, name: str) -> dict[Any, Any]:
        """Return the content of a state after the last batch, by key: a value as a dict, the
        elements of a list as dicts, the entries of a map as pairs of dicts. A key of one column is
        the column's value. In keys, structs and arrays are tuples."""
        held: dict[Any, Any] = {}
        for row in open_store(self._request(0).store_url, state=name).read().to_pylist():
            key = frozen(tuple(row.pop(column) for column in self._rows.keys))
            whole = row.get("list_value", row.get("map_value", row))
            held[key[0] if len(key) == 1 else key] = whole
        return held

    def timers(self) -> dict[Any, list[int]]:
        """Return the timers after the last batch, by key, in ms since 1970."""
        if self._time_mode == "None":
            return {}
        held: dict[Any, list[int]] = {}
        url, name = self._request(0).store_url, DUE_TIMERS[self._time_mode][0]
        for row in open_store(url, state=name).read().to_pylist():
            expiry_ms = row.pop("expiry_ms")
            key = frozen(tuple(row.values()))
            held.setdefault(key[0] if len(key) == 1 else key, []).append(expiry_ms)
        return {key: sorted(times) for key, times in held.items()}

    def close(self) -> None:
        """Delete the state. Safe to call again."""
        self._maintenance.close()
        self._backends.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_watermark(self, watermark: tuple[str, int] | None) -> None:
        if (watermark is not None) != (self._time_mode == "EventTime"):
            raise ConfigurationError(
                'time mode "EventTime" needs watermark=("at", 5_000), a column and milliseconds; no'
                f" other mode has one; watermark is {watermark!r} in mode {self._time_mode!r}"
            )
        if watermark is None:
            return
        name, schema = watermark[0], self._rows.schema
        self._rows.check_has(name)
        if not isinstance(schema[name].dataType, TimestampType | TimestampNTZType):
            raise ConfigurationError(
                f"column {name!r} of the watermark is {schema[name].dataType.simpleString()}; an "
                "event time is a timestamp"
            )

    def _api_of(self, processor: Any) -> ProcessorApi:
        return in_arrow(_BLOCK) if isinstance(processor, ArrowStatefulProcessor) else ROW_API

    def _planned(self, parallelism: int) -> OperatorSpec:
        pickled = dumps_processor(self._processor)
        api = self._api
        schemas = ParsedSchemas(schema_of)
        states = record_states(pickle.loads(pickled), schemas, self._time_mode, api.handle_type)
        has_time, initial = self._event_times is not None, self._initial
        sides = () if initial is None else (initial.input,)
        first_steps = () if initial is None else (api.initial_step,)
        key_fields = self._rows.key_fields
        return OperatorSpec(
            operator=_OPERATOR,
            plan_id=uuid4().hex,
            store_root=self._folder.name,
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            key_schema_json=StructType(key_fields).json(),
            processor=ProcessorSpec(
                pickled_processor=pickled,
                run_plan=RunPlan(
                    EpochInputs(self._rows.layout, sides, tells_time=has_time),
                    (*first_steps, *api.steps(self._time_mode, states.keyed)),
                    api.row_form,
                    api.handle_type,
                    both_times if has_time else no_time,
                    self._event_times,
                ),
                key_columns=key_columns(key_fields),
                states=(*states.keyed, *timers_of(self._time_mode)),
                operator_states=states.operator,
                deleted_states=states.deleted,
                output_schema=arrow_schema(self._output),
                spool_bytes=1 << 20,
            ),
            checkpoints=CheckpointSettings(store_retry_seconds=10),
            hosts=HostSettings(per_executor=1),
        )

    def _request(self, subtask: int) -> EpochRequest:
        task = EpochTask(
            query_id=_QUERY,
            run_id=self._run_id,
            epoch=self._epoch,
            subtask=subtask,
            attempt=self._attempt,
        )
        return EpochRequest(self._spec, task, ())

    def _run(self, subtask: int, table: pa.Table) -> list[Row]:
        session = self._sessions[subtask]
        self._attempt += 1
        attempt = session.accept(self._request(subtask), lambda: None)
        groups: list[Any] = table.column(len(self._rows.schema)).to_pylist()
        own = {*session.key_groups, control_key_group(subtask)}
        mine = table.filter(pa.array([group in own for group in groups], pa.bool_()))
        names = self._output.names
        with session.run(attempt, mine) as epoch, epoch.output as spool:
            return [
                Row(**dict(zip(names, row.values(), strict=True)))
                for batch in spool.read()
                for row in batch.to_pylist()
            ]

    def _table(self, rows: Iterable[Any]) -> pa.Table:
        """Return one table for all subtasks. The table has the rows of the batch and, in the first
        batch, the rows of the initial state. A column has the key group of each row. Except in time
        mode "None", the table also has control rows, and a column with the batch's time."""
        keyed, initial, has_time = self._rows, self._initial, self._event_times is not None
        columns = keyed.columns(rows)
        groups = keyed.key_groups(columns, MAX_PARALLELISM)
        in_front, behind = len(groups), len(self._sessions) if has_time else 0
        sides: list[Any] = []
        if initial is not None:
            of_initial = initial.rows.columns(() if self._epoch else initial.given)
            structs = pa.StructArray.from_arrays(of_initial, names=initial.rows.schema.names)
            sides = [_with_nulls(in_front, structs, behind)]
            groups += initial.rows.key_groups(of_initial, MAX_PARALLELISM)
        columns = [_with_nulls(0, column, len(groups) - in_front + behind) for column in columns]
        groups += map(control_key_group, range(behind))
        columns += [pa.array(groups, pa.int32()), *sides]
        names = [*keyed.schema.names, "_cowstate_key_group", *[_INITIAL_COLUMN for _ in sides]]
        if has_time:
            columns.append(pa.array([self._now_ms] * len(groups), pa.int64()))
            names.append("_cowstate_batch_ms")
        return pa.table(columns, names)


def _with_nulls(before: int, column: Any, after: int) -> Any:
    kind = column.type
    return pa.concat_arrays([pa.nulls(before, kind), column, pa.nulls(after, kind)])


class ScriptedPandasOperator(ScriptedOperator):
    """ScriptedOperator for a processor of `transformWithStateInPandas`, with rows as DataFrames.
    The session's time zone is UTC. The output consists of Rows, as in ScriptedOperator."""

    def _api_of(self, processor: Any) -> ProcessorApi:
        # pandas takes a third of a second to import.
        from spark_state.processor.pandas_frames import PandasFrames

        return by_key(PandasFrames(time_zone="UTC", frame_size=_BLOCK))


def _event_times(
    rows: StructType, time_mode: str, watermark: tuple[str, int] | None
) -> EventTimes | None:
    if time_mode == "None":
        return None
    return EventTimes(
        index=None if watermark is None else rows.names.index(watermark[0]),
        carried_index=None,
        delays_ms=() if watermark is None else (watermark[1],),
        policy="min",
        drops_late=watermark is not None,
    )


def _milliseconds(at: int | datetime.datetime) -> int:
    return round(at.timestamp() * 1000) if isinstance(at, datetime.datetime) else at
