"""The DataFrame that an operator receives: rows and, in time modes, the time. The steps:

    keyed rows                 computed key columns, all columns, _cowstate_key_group
    side inputs                a column of structs for each input, see side_inputs
    time, in time modes        the columns of upstream_watermarks, _cowstate_batch_ms
    control rows               in time modes of a stream, by a union, see clock_source
    repartitionById            sends each row to the subtask of its key group

The key group is `pmod(xxhash64(key columns), max parallelism)`, computed by the JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from spark_state.processor.broadcast_steps import handle_broadcast_rows
from spark_state.processor.epoch_steps import Step
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import EpochInputs
from spark_state.processor.input.event_times import EventTimes
from spark_state.processor.processor_api import ProcessorApi, check_has
from spark_state.spark.input.clock_source import ClockSettings, with_control_rows
from spark_state.spark.input.event_time_columns import event_times
from spark_state.spark.input.keyed_input import KEY_GROUP_COLUMN, keyed_input, with_batch_time
from spark_state.spark.input.operator_call import OperatorCall
from spark_state.spark.input.side_inputs import (
    SideRows,
    broadcast_rows,
    check_broadcast,
    initial_rows,
    with_side_rows,
)
from spark_state.spark.input.upstream_watermarks import (
    check_not_behind_aggregation,
    upstream_watermarks,
)
from spark_state.spark.session.operator_configuration import OperatorConfiguration


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """The input of an operator.

    `by_subtask`: the rows, one partition for each subtask; `inputs`: splits a partition into keyed
    rows and side inputs; `event_times`: the positions of the event times, None in time mode "None";
    `key_fields`: the fields of the key; `first_steps`: the steps that handle the side inputs,
    before the keyed rows.
    """

    by_subtask: DataFrame
    inputs: EpochInputs
    event_times: EventTimes | None
    key_fields: list[StructField]
    first_steps: tuple[Step, ...]


def operator_input(
    call: OperatorCall,
    mode: str,
    operator: str,
    configuration: OperatorConfiguration,
    api: ProcessorApi,
) -> OperatorInput:
    """The input of the operator of a call. `mode`: the time mode; `operator`: the operator's name;
    `api`: the API of the call's processor. Raises the errors of check_not_behind_aggregation,
    upstream_watermarks, keyed_input, event_times, check_broadcast and initial_rows."""
    max_parallelism, times = configuration.max_parallelism, None
    if mode == "None":
        keyed, layout, key_fields = keyed_input(call.grouped, max_parallelism)
    else:
        if mode == "EventTime":
            check_not_behind_aggregation(call.grouped._df)
        upstream = upstream_watermarks(call.grouped._df)
        keyed, layout, key_fields = keyed_input(call.grouped, max_parallelism, upstream)
        times = event_times(upstream, keyed.schema.fields[: layout.key_group_index], mode)
    sides, first_steps = _sides(call, key_fields, configuration, api)
    keyed, side_inputs = with_side_rows(keyed, sides)
    if times is not None and keyed.isStreaming:
        clock = ClockSettings(
            configuration.store_root,
            operator,
            configuration.parallelism,
            times.policy if mode == "EventTime" else None,
            store_options=configuration.checkpoints.store_options,
        )
        keyed = with_control_rows(keyed, clock)
    if times is not None:
        keyed = with_batch_time(keyed)
    inputs = EpochInputs(layout, side_inputs, tells_time=times is not None)
    by_subtask = _by_subtask(keyed, configuration)
    return OperatorInput(by_subtask, inputs, times, key_fields, first_steps)


def _sides(
    call: OperatorCall,
    key_fields: Sequence[StructField],
    configuration: OperatorConfiguration,
    api: ProcessorApi,
) -> tuple[list[SideRows], tuple[Step, ...]]:
    """The side inputs of a call, and the steps that handle their rows."""
    sides: list[SideRows] = []
    steps: list[Step] = []
    if call.broadcast:
        check_broadcast(call.grouped._df, call.broadcast)
        check_has(call.processor, "handleBroadcastRows(name, rows, state)", "broadcast")
        sides += [
            broadcast_rows(name, rows, configuration.parallelism)
            for name, rows in call.broadcast.items()
        ]
        steps.append(partial(handle_broadcast_rows, tuple(call.broadcast)))
    if call.initial_state is not None:
        df, given = call.grouped._df, call.initial_state
        sides.append(initial_rows(df, given, key_fields, configuration.max_parallelism))
        check_has(call.processor, api.initial_method, "initial_state")
        steps.append(api.initial_step)
    return sides, tuple(steps)


def _by_subtask(keyed: DataFrame, configuration: OperatorConfiguration) -> DataFrame:
    key_group, first_control = F.col(KEY_GROUP_COLUMN), F.lit(control_key_group(0))
    of_keys = subtask_column(key_group, configuration)
    subtask = F.when(key_group < 0, first_control - key_group).otherwise(of_keys).cast("int")
    return keyed.repartitionById(configuration.parallelism, subtask)


def subtask_column(key_group: Column, configuration: OperatorConfiguration) -> Column:
    """The subtask that owns a key group."""
    return F.floor(key_group * configuration.parallelism / configuration.max_parallelism)
