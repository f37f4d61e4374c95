"""One epoch of one subtask: run the processor over the subtask's inputs.

Each run unpickles a new processor, as each Spark task does; only the state lives longer. Exceptions
of the processor pass through unchanged.

    table -> inputs by name -> steps, one after the other -> output -> record batches -> spool

The plan of the operator fixes the inputs, the steps and the form of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.keyed_state_backend import KeyedStateBackend
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.operator_state.meta_info import OperatorStateMetaInfo
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.epoch_steps import EpochRun, RunningCall, Step
from spark_state.processor.handles import DeclaringHandle
from spark_state.processor.input.epoch_inputs import EpochInputs, RowsByKey
from spark_state.processor.input.epoch_time import EpochTime, ShownTime
from spark_state.processor.input.event_times import EventTimes, check_emitted
from spark_state.processor.module_sources import ModuleSource, load_processor
from spark_state.processor.output_rows import OutputPlace, OutputSpool
from spark_state.processor.row_form import RowForm
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.serving_handles import serving_handle
from spark_state.state_descriptor import StateDescriptor


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Plan of an epoch's run. Can be pickled.

    - `inputs`: positions of the inputs in a subtask's table.
    - `steps`: the steps, in order.
    - `row_form`: form of the rows that the processor gets and yields.
    - `handle_type`: class of the processor's handle.
    - `shown_time`: returns the time that the processor sees.
    - `event_times`: event times of the rows; None if the operator knows no time.
    - `emitted_time`: output column with the event time for the operators downstream; None if there
      is no such column.
    """

    inputs: EpochInputs
    steps: tuple[Step, ...]
    row_form: RowForm
    handle_type: type[DeclaringHandle]
    shown_time: ShownTime
    event_times: EventTimes | None = None
    emitted_time: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """Everything that a subtask needs to run a processor.

    - `pickled_processor`: cloudpickle bytes.
    - `run_plan`: plan of each epoch's run.
    - `key_columns`: columns by which the rows are grouped.
    - `states`: states of keys that the processor declares, and the state with the timers.
    - `output_schema`: Arrow schema of the output.
    - `spool_bytes`: the greatest number of bytes of output in memory; a temporary file holds all
      further output.
    - `operator_states`: operator states that the processor declares.
    - `deleted_states`: states of keys that `init` declares and then deletes.
    - `sources`: modules that the pickle needs.
    """

    pickled_processor: bytes
    run_plan: RunPlan
    key_columns: KeyColumns
    states: tuple[StateDescriptor, ...]
    output_schema: pa.Schema
    spool_bytes: int
    operator_states: tuple[OperatorStateMetaInfo, ...] = ()
    deleted_states: tuple[StateDescriptor, ...] = ()
    sources: tuple[ModuleSource, ...] = ()

    def processor(self) -> Any:
        """Unpickle a new processor. Raises ConfigurationError if a needed module differs from the
        driver's module."""
        return load_processor(self.pickled_processor, self.sources)


@dataclass(frozen=True, slots=True)
class Backends:
    """State and output of a subtask in one epoch.

    - `keyed`: state with a key.
    - `operator`: state without a key.
    - `output`: place where the output waits until it is sent.
    - `dropped`: names of the states that existed and were deleted.
    - `call`: the processor's method that runs now.
    """

    keyed: KeyedStateBackend[Any]
    operator: OperatorStateBackend
    output: OutputPlace = field(default_factory=OutputPlace.unlimited)
    dropped: set[str] = field(default_factory=set)
    call: RunningCall = field(default_factory=RunningCall)

    def drop(self, name: str) -> None:
        """Delete the keyed or operator state of this name with its content, if the state exists."""
        was_held = [self.keyed.drop(name), self.operator.drop(name)]
        if any(was_held):
            self.dropped.add(name)


def run_processor(
    spec: ProcessorSpec,
    processor: Any,
    backends: Backends,
    inputs: Mapping[str, RowsByKey],
    time: EpochTime | None,
    check: Callable[[], None],
) -> OutputSpool:
    """Run `processor` over `inputs` and return the output, not yet sent.

    `time`: None if the time is unknown. `check`: called now and then; raises to stop the run. The
    caller seals or rolls back the backends, and closes the spool.
    """
    plan, backend = spec.run_plan, backends.keyed
    operator_states = OperatorStates(backends.operator, spec.operator_states, STATE_FORMS.make_row)
    timer_values = plan.shown_time(time)
    backend.begin(timer_values.getCurrentProcessingTimeInMs())
    run = EpochRun(
        processor=processor,
        backend=backend,
        key_columns=spec.key_columns,
        inputs=inputs,
        row_form=plan.row_form,
        timer_values=timer_values,
        check=check,
        operator_states=operator_states,
        call=backends.call,
    )
    spool = OutputSpool(spec.output_schema, spec.spool_bytes, backends.output)
    try:
        opened = partial(plan.handle_type.open_state, backend)
        handle = serving_handle(
            spec.states, opened, operator_states, backends.drop, plan.handle_type
        )
        run.call.begin("init")
        processor.init(handle)
        handle.end_init()
        output = chain.from_iterable(step(run) for step in plan.steps)
        for batch in plan.row_form.batches(output, spec.output_schema):
            if plan.emitted_time is not None and time is not None:
                check_emitted(batch, plan.emitted_time, time.late_watermark_ms)
            spool.append(batch)
        run.call.begin("close")
        processor.close()
        run.call.end()
        spool.finish()
    except BaseException:
        spool.close()
        raise
    return spool
