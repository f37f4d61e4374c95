"""What an operator is sent: its rows, and in time modes what brings it the time.

    keyed rows                 computed key columns, all columns, _cowstate_key_group
    and with time, in a stream union of control rows, see clock_source
                               _cowstate_batch_ms
    -> repartitionById         each row to the subtask of its key group

The key group is `pmod(xxhash64(key columns), max parallelism)`, computed by the JVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from spark_state.processor.epoch_inputs import (
    EpochInputs,
    OneInput,
    UnitedInputs,
    control_key_group,
)
from spark_state.processor.event_times import EventTimes
from spark_state.spark.operator.clock_source import ClockSettings, with_control_rows
from spark_state.spark.operator.keyed_input import KEY_GROUP_COLUMN, keyed_input, with_batch_time
from spark_state.spark.operator.operator_configuration import OperatorConfiguration
from spark_state.spark.operator.time_modes import TimeMode, event_times


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """`by_subtask`: what is sent, a partition a subtask; `inputs`, `event_times`: how a subtask
    finds its inputs and their event times in it; `key_fields`: the fields of the key."""

    by_subtask: DataFrame
    inputs: EpochInputs
    event_times: EventTimes | None
    key_fields: list[StructField]


def operator_input(
    grouped: Any, mode: TimeMode, operator: str, configuration: OperatorConfiguration
) -> OperatorInput:
    """The input of an operator on `df.groupBy(…)`. Raises what keyed_input and event_times do."""
    keyed, layout, key_fields = keyed_input(grouped, configuration.max_parallelism)
    times = event_times(grouped._df, keyed.schema.fields[: layout.key_group_index], mode)
    inputs: EpochInputs = OneInput(layout)
    if times is not None:
        inputs = UnitedInputs(layout)
        if keyed.isStreaming:
            keyed = with_control_rows(keyed, _clock_settings(operator, configuration, mode, times))
        keyed = with_batch_time(keyed)
    return OperatorInput(_by_subtask(keyed, configuration), inputs, times, key_fields)


def _clock_settings(
    operator: str, configuration: OperatorConfiguration, mode: TimeMode, times: EventTimes
) -> ClockSettings:
    policy = times.policy if mode is TimeMode.EVENT_TIME else None
    return ClockSettings(configuration.store, operator, configuration.parallelism, policy)


def _by_subtask(keyed: DataFrame, configuration: OperatorConfiguration) -> DataFrame:
    key_group, first_control = F.col(KEY_GROUP_COLUMN), F.lit(control_key_group(0))
    of_keys = subtask_column(key_group, configuration)
    subtask = F.when(key_group < 0, first_control - key_group).otherwise(of_keys).cast("int")
    return keyed.repartitionById(configuration.parallelism, subtask)


def subtask_column(key_group: Column, configuration: OperatorConfiguration) -> Column:
    """The subtask that has a key group."""
    return F.floor(key_group * configuration.parallelism / configuration.max_parallelism)
