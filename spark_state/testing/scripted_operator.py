"""A processor run over scripted rows, times and restarts, without Spark: for unit tests.

    with ScriptedOperator(
        Sessions(), rows="user string, page string", key="user", output="user string, pages long",
        time_mode="ProcessingTime",
    ) as operator:
        assert operator.batch([("ada", "home")], at=0) == []
        operator.restart(parallelism=3)
        assert operator.batch([], at=60_000) == [Row(user="ada", pages=1)]

It is the engine that runs in production: state goes to files in a folder after every batch, and a
restart reads them. What Spark would do is scripted: which rows a batch has, when it was planned.
"""

from __future__ import annotations

import datetime
import pickle
import tempfile
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from checkpoint_store.state_reader import open_store
from spark_state.errors import ConfigurationError
from spark_state.frozen_keys import frozen
from spark_state.host.epoch_request import (
    CheckpointSettings,
    EpochRequest,
    EpochTask,
    OperatorSpec,
)
from spark_state.host.maintenance import Maintenance
from spark_state.host.store_session import StoreSession
from spark_state.host.subtask_session import SubtaskSession
from spark_state.key_group_assignment import KeyGroupAssignment, is_hashable_type
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
from spark_state.processor.blocks import BlockSize
from spark_state.processor.epoch_inputs import OneInput, UnitedInputs, control_key_group
from spark_state.processor.epoch_time import both_times, no_time
from spark_state.processor.event_times import EventTimes
from spark_state.processor.handles import record_states
from spark_state.processor.key_grouping import InputLayout
from spark_state.processor.pickles import dumps_processor
from spark_state.processor.processor_api import ROW_API, in_arrow
from spark_state.processor.processor_run import ProcessorSpec, RunPlan
from spark_state.processor.schemas import (
    arrow_schema,
    column_schema,
    operator_state_meta_info,
    state_descriptor,
)
from spark_state.processor.timed_steps import timers_of
from spark_state.state_descriptor import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    StateDescriptor,
    StateKind,
)
from spark_state.testing.ddl_schemas import schema_of

MAX_PARALLELISM = 16
_TIME_MODES = ("None", "ProcessingTime", "EventTime")
_TIMERS = {"ProcessingTime": PROCESSING_TIMERS, "EventTime": EVENT_TIMERS}
_BLOCK = BlockSize(rows=10_000, bytes=64 << 20)
_OPERATOR, _QUERY = "operator-0", "scripted"


class ScriptedOperator:
    """A processor of the row API or of Arrow, with the state that its batches leave.

    - `rows`: the schema of the rows, a StructType or DDL text; `key`: the key columns among them;
      `output`: the schema of what the processor yields.
    - `time_mode`: "None", "ProcessingTime" or "EventTime". In "EventTime", `watermark` is the
      column of the event time, and how many milliseconds the watermark is behind it.

    It has one subtask until `restart` is called with another parallelism.
    Raises ConfigurationError for wrong arguments, and what planning the operator would raise. Use
    it in a `with` statement, or close it.
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
        self._rows = schema_of(rows, "rows")
        self._keys = [key] if isinstance(key, str) else list(key)
        self._output = schema_of(output, "output")
        self._time_mode = time_mode
        self._check_columns(watermark)
        self._event_times = _event_times(self._rows, time_mode, watermark)
        self._processor = processor
        self._api = in_arrow(_BLOCK) if isinstance(processor, ArrowStatefulProcessor) else ROW_API
        self._api.check_processor(processor)
        self._folder = tempfile.TemporaryDirectory(prefix="cowstate-scripted-")
        self._maintenance = Maintenance()
        self._epoch, self._attempt, self._now_ms = 0, 0, 0
        self._sessions: list[SubtaskSession] = []
        self._run_id = ""
        self.restart(parallelism=1)

    def batch(
        self, rows: Iterable[Any] = (), *, at: int | datetime.datetime | None = None
    ) -> list[Row]:
        """Run a batch, and return its output.

        `rows`: tuples, Rows or dicts; `at`: when the batch is planned, in ms since 1970 or as a
        datetime; a second after the last one if None. What a processor raises is raised, and leaves
        the state as it was: the next call runs the batch again.
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
        """Start the query again with what the store has, and nothing of the memory.

        `processor`: another one, or another version of it; `parallelism`: another one.
        """
        if processor is not None:
            self._api.check_processor(processor)
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
            SubtaskSession(self._request(subtask), store, self._maintenance)
            for subtask in range(subtasks)
        ]

    def state(self, name: str) -> dict[Any, Any]:
        """What a state holds after the last batch, by key: the value as a dict, the elements of a
        list as dicts, the entries of a map as pairs of dicts. A key of one column is its value; in
        keys, structs and arrays are tuples."""
        held: dict[Any, Any] = {}
        for row in open_store(self._request(0).store_url, state=name).read().to_pylist():
            key = frozen(tuple(row.pop(column) for column in self._keys))
            whole = row.get("list_value", row.get("map_value", row))
            held[key[0] if len(key) == 1 else key] = whole
        return held

    def timers(self) -> dict[Any, list[int]]:
        """The timers after the last batch, by key, in ms since 1970."""
        if self._time_mode == "None":
            return {}
        held: dict[Any, list[int]] = {}
        url, name = self._request(0).store_url, _TIMERS[self._time_mode]
        for row in open_store(url, state=name).read().to_pylist():
            expiry_ms = row.pop("expiry_ms")
            key = frozen(tuple(row.values()))
            held.setdefault(key[0] if len(key) == 1 else key, []).append(expiry_ms)
        return {key: sorted(times) for key, times in held.items()}

    def close(self) -> None:
        """Delete the state. Safe to call again."""
        self._maintenance.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_columns(self, watermark: tuple[str, int] | None) -> None:
        if self._time_mode not in _TIME_MODES:
            raise ConfigurationError(
                f"time mode {self._time_mode!r} is unknown; use one of {', '.join(_TIME_MODES)}"
            )
        if (watermark is not None) != (self._time_mode == "EventTime"):
            raise ConfigurationError(
                'time mode "EventTime" needs watermark=("at", 5_000), a column and milliseconds; no'
                f" other mode has one; watermark is {watermark!r} in mode {self._time_mode!r}"
            )
        for name in [*self._keys, *(watermark or ())[:1]]:
            if name not in self._rows.names:
                raise ConfigurationError(
                    f"{name!r} is no column of rows, which are {', '.join(self._rows.names)}"
                )
        if watermark is not None and not isinstance(
            self._rows[watermark[0]].dataType, TimestampType | TimestampNTZType
        ):
            raise ConfigurationError(
                f"column {watermark[0]!r} of the watermark is "
                f"{self._rows[watermark[0]].dataType.simpleString()}; an event time is a timestamp"
            )
        for name in self._keys:
            if not is_hashable_type(self._rows[name].dataType.jsonValue()):
                raise ConfigurationError(f"column {name!r} of {self._rows[name]} can be no key")

    def _planned(self, parallelism: int) -> OperatorSpec:
        pickled = dumps_processor(self._processor)
        api = self._api
        states = record_states(
            pickle.loads(pickled), _ParsedSchemas(), self._time_mode, api.handle_type
        )
        names = tuple(self._rows.names)
        layout = InputLayout(names, tuple(names.index(key) for key in self._keys))
        has_time = self._event_times is not None
        key_fields = [self._rows[name] for name in self._keys]
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
                    UnitedInputs(layout) if has_time else OneInput(layout),
                    api.steps(self._time_mode, states.keyed),
                    api.row_form,
                    api.serve,
                    both_times if has_time else no_time,
                    self._event_times,
                ),
                key_columns=KeyColumns(
                    tuple(self._keys),
                    tuple(field.type for field in arrow_schema(StructType(key_fields))),
                    tuple(str(field.dataType.jsonValue()) for field in key_fields),
                ),
                states=(*states.keyed, *timers_of(self._time_mode)),
                operator_states=states.operator,
                output_schema=arrow_schema(self._output),
                spool_bytes=1 << 20,
            ),
            checkpoints=CheckpointSettings(100, 10, 86_400, 10, start_empty=False),
        )

    def _request(self, subtask: int) -> EpochRequest:
        task = EpochTask(
            query_id=_QUERY,
            run_id=self._run_id,
            epoch=self._epoch,
            subtask=subtask,
            attempt=self._attempt,
            in_unseen_function=False,
        )
        return EpochRequest(self._spec, task, ())

    def _run(self, subtask: int, table: pa.Table) -> list[Row]:
        session = self._sessions[subtask]
        self._attempt += 1
        request = self._request(subtask)
        claim = session.accept(request)
        groups: list[Any] = table.column(len(self._rows)).to_pylist()
        own = {*session.key_groups, control_key_group(subtask)}
        mine = table.filter(pa.array([group in own for group in groups], pa.bool_()))
        names = self._output.names
        with session.run(request, claim, mine, lambda: None).output as spool:
            return [
                Row(**dict(zip(names, row.values(), strict=True)))
                for batch in spool.read()
                for row in batch.to_pylist()
            ]

    def _table(self, rows: Iterable[Any]) -> pa.Table:
        """The rows of all subtasks with their key groups, control rows, and the batch's time."""
        schema = arrow_schema(self._rows)
        values = [_values(row, self._rows.names) for row in rows]
        columns: list[Any] = [
            pa.array([row[index] for row in values], field.type)
            for index, field in enumerate(schema)
        ]
        types = [self._rows[name].dataType.jsonValue() for name in self._keys]
        assignment = KeyGroupAssignment(types, MAX_PARALLELISM)
        places = [self._rows.names.index(name) for name in self._keys]
        keys = zip(*(columns[place].to_pylist() for place in places), strict=True)
        groups = [assignment.key_group(key) for key in keys]
        if self._event_times is None:
            return pa.table([*columns, pa.array(groups, pa.int32())], [*schema.names, "_key_group"])
        subtasks = len(self._sessions)
        columns = [pa.concat_arrays([c, pa.nulls(subtasks).cast(c.type)]) for c in columns]
        groups += map(control_key_group, range(subtasks))
        times = [self._now_ms] * len(groups)
        columns += [pa.array(groups, pa.int32()), pa.array(times, pa.int64())]
        return pa.table(columns, [*schema.names, "_key_group", "_batch_ms"])


class _ParsedSchemas:
    """The schemas of states, parsed without Spark."""

    def keyed(self, kind: StateKind, name: str, schemas: tuple[Any, ...]) -> StateDescriptor:
        """See Describe."""
        parsed = [schema_of(schema, f"state {name!r}") for schema in schemas]
        return state_descriptor(name, kind, column_schema(kind, name, parsed).json())

    def operator(
        self, mode: OperatorStateMode, name: str, schemas: tuple[Any, ...]
    ) -> OperatorStateMetaInfo:
        """See Describe."""
        parsed = [schema_of(schema, f"operator state {name!r}") for schema in schemas]
        return operator_state_meta_info(mode, name, parsed)


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


def _values(row: Any, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(row, dict):
        if row.keys() != set(names):
            raise ConfigurationError(
                f"{row!r} has not the columns of rows, which are {', '.join(names)}; give None "
                "where a column is null"
            )
        return tuple(row[name] for name in names)
    values = () if isinstance(row, str) or not isinstance(row, Iterable) else tuple(row)
    if len(values) != len(names):
        raise ConfigurationError(
            f"{row!r} is no row: give a tuple of {', '.join(names)}, a Row, or a dict"
        )
    return values
