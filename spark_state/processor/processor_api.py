"""What differs between the APIs of processors, chosen when an operator is planned.

rows      PySpark's StatefulProcessor, rows as pyspark.sql.Rows
pandas    PySpark's StatefulProcessor, rows as pandas.DataFrames
arrow     ArrowStatefulProcessor, rows of many keys as pyarrow.Tables
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_state.errors import ConfigurationError
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.processor.arrow.arrow_handle import ArrowProcessorHandle
from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
from spark_state.processor.arrow.arrow_steps import (
    FireTimersInBulk,
    HandleInitialBatches,
    HandleInputBatches,
)
from spark_state.processor.arrow.arrow_tables import ArrowTables
from spark_state.processor.arrow.states import ArrowTimers, arrow_state
from spark_state.processor.blocks import BlockSize
from spark_state.processor.epoch_steps import Step, handle_input_rows
from spark_state.processor.handles import DeclaringHandle, HandleType, ProcessorHandle
from spark_state.processor.initial_state_step import handle_initial_state
from spark_state.processor.row_form import RowForm, SparkRows
from spark_state.processor.serving_handles import (
    WITHOUT_TIME,
    Serve,
    ServedStates,
    serve_by_key,
    serving_handle,
)
from spark_state.processor.timed_steps import DUE_TIMERS, FireTimers, FireTimersOf, remove_expired
from spark_state.state_descriptor import StateDescriptor


@dataclass(frozen=True, slots=True)
class ProcessorApi:
    """`processor_type`: of its processors; `row_form`: what they get and yield; the steps of an
    epoch: `initial_step`, `input_step`, `fire_timers` for a state of timers and the time up to
    which they are due; `handle_type`: of the handle that `init` gets, when the operator is planned;
    `serve`: the same for an epoch."""

    processor_type: type
    row_form: RowForm
    initial_step: Step
    input_step: Step
    fire_timers: FireTimersOf
    handle_type: HandleType
    serve: Serve

    def steps(self, time_mode: str, states: Sequence[StateDescriptor]) -> tuple[Step, ...]:
        """The steps of an operator with these states, in a time mode by Spark's name of it."""
        steps = [self.input_step]
        if time_mode in DUE_TIMERS:
            steps.append(self.fire_timers(*DUE_TIMERS[time_mode]))
        if any(state.ttl_ms is not None for state in states):
            steps.append(remove_expired)
        return tuple(steps)

    def check_processor(self, processor: Any) -> None:
        """Raise ConfigurationError for a processor of another API."""
        if not isinstance(processor, self.processor_type):
            raise ConfigurationError(
                f"the processor must be of {self.processor_type.__name__}, got {processor!r}; pass "
                "an instance, not a class"
            )


def serve_in_bulk(
    backend: KeyedStateBackend[Any],
    states: Sequence[StateDescriptor],
    operator_states: OperatorStates,
    drop: Callable[[str], None],
) -> DeclaringHandle:
    """The handle of an ArrowStatefulProcessor: states of many keys."""
    set_key = backend.set_current_key
    opened = [(state.name, backend.open_table(state)) for state in states]
    timers = [ArrowTimers(table.table, set_key) for _, table in opened if table.kind == "timers"]
    of_keys = {
        name: (table.kind, arrow_state(table, set_key))
        for name, table in opened
        if table.kind != "timers"
    }
    served = ServedStates(of_keys, timers[0] if timers else WITHOUT_TIME, operator_states, drop)
    return serving_handle(served, ArrowProcessorHandle)


def by_key(row_form: RowForm) -> ProcessorApi:
    """The API of PySpark's processors, with a form of rows."""
    return ProcessorApi(
        processor_type=StatefulProcessor,
        row_form=row_form,
        initial_step=handle_initial_state,
        input_step=handle_input_rows,
        fire_timers=FireTimers,
        handle_type=ProcessorHandle,
        serve=serve_by_key,
    )


def in_arrow(size: BlockSize) -> ProcessorApi:
    """The API of ArrowStatefulProcessor; `size`: of what it gets with a call."""
    return ProcessorApi(
        processor_type=ArrowStatefulProcessor,
        row_form=ArrowTables(),
        initial_step=HandleInitialBatches(size),
        input_step=HandleInputBatches(size),
        fire_timers=partial(FireTimersInBulk, size),
        handle_type=ArrowProcessorHandle,
        serve=serve_in_bulk,
    )


ROW_API = by_key(SparkRows())
