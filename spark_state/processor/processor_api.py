"""The three APIs of processors, and how they differ. Each operator uses one API.

rows      PySpark's StatefulProcessor, rows as pyspark.sql.Rows
pandas    PySpark's StatefulProcessor, rows as pandas.DataFrames
arrow     ArrowStatefulProcessor, rows of many keys as pyarrow.Tables
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_state.errors import ConfigurationError
from spark_state.processor.arrow.arrow_handle import ArrowProcessorHandle
from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
from spark_state.processor.arrow.arrow_steps import (
    fire_timers_in_bulk,
    handle_initial_batches,
    handle_input_batches,
)
from spark_state.processor.arrow.arrow_tables import ArrowTables
from spark_state.processor.blocks import BlockSize
from spark_state.processor.epoch_steps import Step, handle_initial_state, handle_input_rows
from spark_state.processor.handles import DeclaringHandle, ProcessorHandle
from spark_state.processor.row_form import RowForm, SparkRows
from spark_state.processor.timed_steps import DUE_TIMERS, fire_timers, remove_expired
from spark_state.state_descriptor import StateDescriptor

_OF_ROWS = {
    "handleInputRows": "handleInputBatch(batch, timerValues)",
    "handleExpiredTimer": "handleExpiredTimers(timers, timerValues)",
    "handleInitialState": "handleInitialBatch(batch, timerValues)",
}


@dataclass(frozen=True, slots=True)
class ProcessorApi:
    """An API of processors.

    - `processor_type`: base class of the processors.
    - `row_form`: form of the rows that processors get and yield.
    - `initial_step`, `input_step`: steps for an initial state and for rows.
    - `initial_method`: method that `initial_step` calls.
    - `fire_timers(timers, until_ms, run)`: the step for due timers, see timed_steps.
    - `handle_type`: class of the handle that `init` gets.
    - `misnamed`: methods of another API, each with the name of the method in this API.
    """

    processor_type: type
    row_form: RowForm
    initial_step: Step
    initial_method: str
    input_step: Step
    fire_timers: Callable[..., Iterator[Any]]
    handle_type: type[DeclaringHandle]
    misnamed: Mapping[str, str]

    def steps(self, time_mode: str, states: Sequence[StateDescriptor]) -> tuple[Step, ...]:
        """Return the steps of an operator with these states. `time_mode`: Spark's name of the time
        mode."""
        steps = [self.input_step]
        if time_mode in DUE_TIMERS:
            steps.append(partial(self.fire_timers, *DUE_TIMERS[time_mode]))
        if any(state.ttl_ms is not None for state in states):
            steps.append(remove_expired)
        return tuple(steps)

    def check_processor(self, processor: Any) -> None:
        """Raise ConfigurationError for a processor of another API."""
        if not isinstance(processor, self.processor_type):
            raise ConfigurationError(
                "the processor must be an instance of a class that derives from "
                f"{self.processor_type.__name__}, got {processor!r}. A StatefulProcessor runs in "
                "transform_with_state, an ArrowStatefulProcessor in transform_with_state_in_arrow"
            )
        for method, name in self.misnamed.items():
            if hasattr(processor, method):
                raise ConfigurationError(
                    f"{type(processor).__name__} has a method {method}, which nobody would call: "
                    f"in a {self.processor_type.__name__} it is {name}"
                )


def check_has(processor: Any, method: str, argument: str) -> None:
    """Raise ConfigurationError unless the processor has `method`. `argument`: the user's
    argument whose rows `method` gets, such as initial_state. The error names the argument."""
    if not callable(getattr(processor, method.partition("(")[0], None)):
        raise ConfigurationError(
            f"{type(processor).__name__} has no method {method}, which gets the rows of "
            f"{argument}: add it, or leave {argument} out"
        )


def by_key(row_form: RowForm) -> ProcessorApi:
    """Return the API of PySpark's processors with rows of this form."""
    return ProcessorApi(
        processor_type=StatefulProcessor,
        row_form=row_form,
        initial_step=handle_initial_state,
        initial_method="handleInitialState(key, initialState, timerValues)",
        input_step=handle_input_rows,
        fire_timers=fire_timers,
        handle_type=ProcessorHandle,
        misnamed={},
    )


def in_arrow(size: BlockSize) -> ProcessorApi:
    """Return the API of ArrowStatefulProcessor. `size`: the greatest number of rows and of bytes in
    one call."""
    return ProcessorApi(
        processor_type=ArrowStatefulProcessor,
        row_form=ArrowTables(),
        initial_step=partial(handle_initial_batches, size),
        initial_method=_OF_ROWS["handleInitialState"],
        input_step=partial(handle_input_batches, size),
        fire_timers=partial(fire_timers_in_bulk, size),
        handle_type=ArrowProcessorHandle,
        misnamed=_OF_ROWS,
    )


ROW_API = by_key(SparkRows())
