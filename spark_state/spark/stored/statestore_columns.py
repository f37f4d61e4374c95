"""States of operators with the columns of Spark's own state reader.

    value     key, value
    list      key, list_element                     if not flattened: key, list_value
    map       key, user_map_key, user_map_value     if not flattened: key, map_value
    timers    key, expiration_timestamp_ms

The columns `key` and `value` are structs. The last column is always `partition_id`: the subtask
that owns the key. As in Spark, a value that expires is in a struct with the field `value`, and the
expiration time is not shown. A state that `init` declares and deletes has no rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from spark_state.errors import ConfigurationError
from spark_state.processor.stored_schema import struct_from_json
from spark_state.spark.input.keyed_input import key_group_column
from spark_state.spark.stored.stored_operators import (
    StoredOperator,
    deleted_states_of,
    states_of,
)
from spark_state.state_descriptor import EVENT_TIMERS, PROCESSING_TIMERS

_COLLECTIONS = {"list": ("list_element",), "map": ("user_map_key", "user_map_value")}
_WHOLE = {"list": ("list_value",), "map": ("map_value",)}


@dataclass(frozen=True, slots=True)
class StateRead:
    """A read of a state. `flatten`: True for a row for each element of a list or map; `partition`:
    the only partition to read, None for all."""

    operator: StoredOperator
    state: str
    epoch: int
    flatten: bool
    partition: int | None


def state_frame(spark: SparkSession, read: StateRead) -> DataFrame:
    """The state after a batch. Raises ConfigurationError if the state does not exist."""
    deleted = deleted_states_of(read.operator.history.checkpoint_at(read.epoch)).get(read.state)
    state = declared_state(read) if deleted is None else deleted
    names = _COLLECTIONS if read.flatten else _WHOLE
    options = {"versionAsOf": str(read.epoch)}
    if read.flatten and state.kind in _COLLECTIONS:
        options["flattenCollectionTypes"] = "true"
    rows = rows_of_state(spark, read, options) if deleted is None else _no_rows(spark, read, state)
    columns = rows.columns[len(read.operator.key_names) :]
    if state.kind not in _COLLECTIONS:
        return shown_rows(rows, read, [value_column(state, columns)])
    shown = names[state.kind]
    values = [F.col(f"`{column}`").alias(name) for column, name in zip(columns, shown, strict=True)]
    if state.ttl_ms is not None and read.flatten:
        values[-1] = F.struct(values[-1].alias("value")).alias(shown[-1])
    return shown_rows(rows, read, values)


def timers_frame(spark: SparkSession, read: StateRead) -> DataFrame:
    """The timers that are registered after a batch."""
    states = states_of(read.operator.history.checkpoint_at(read.epoch))
    timers = [name for name in (PROCESSING_TIMERS, EVENT_TIMERS) if name in states]
    if not timers:
        raise ConfigurationError(
            f"operator {read.operator.url} has no timers: leave readRegisteredTimers out"
        )
    of_timers = StateRead(read.operator, timers[0], read.epoch, False, read.partition)
    rows = rows_of_state(spark, of_timers, {"versionAsOf": str(read.epoch)})
    (expiry,) = rows.columns[len(read.operator.key_names) :]
    return shown_rows(rows, of_timers, [F.col(f"`{expiry}`").alias("expiration_timestamp_ms")])


def _no_rows(spark: SparkSession, read: StateRead, state: StateSchema) -> DataFrame:
    """An empty DataFrame in place of the rows that `rows_of_state` returns for a state. The columns
    have the same types, but the columns after the key have other names."""
    schema = struct_from_json(state.schema_json)
    types = [field.dataType for field in schema]
    if read.flatten and state.kind in _COLLECTIONS:
        types = _types_of_element(types[0])
    columns = StructType([*read.operator.key_schema])
    for place, data_type in enumerate(types):
        columns = columns.add(f"_cowstate_{place}", data_type)
    return spark.createDataFrame([], columns)


def _types_of_element(collection: DataType) -> list[DataType]:
    if isinstance(collection, MapType):
        return [collection.keyType, collection.valueType]
    assert isinstance(collection, ArrayType)
    return [collection.elementType]


def declared_state(read: StateRead) -> StateSchema:
    """The schema of the state to read. Raises ConfigurationError if the state does not exist."""
    checkpoint = read.operator.history.checkpoint_at(read.epoch)
    states = states_of(checkpoint)
    if read.state in deleted_states_of(checkpoint):
        raise ConfigurationError(
            f"state variable {read.state} of operator {read.operator.url} has no changes to read: "
            f"init deletes it in batch {read.epoch} (deleteIfExists). Let option changeEndBatchId "
            "be a batch before that was the case"
        )
    declared = sorted(name for name, state in states.items() if state.kind != "timers")
    if read.state not in declared:
        raise ConfigurationError(
            f"[STDS_INVALID_OPTION_VALUE.WITH_MESSAGE] Invalid value for source option "
            f"'stateVarName': state variable {read.state} is not defined for operator "
            f"{read.operator.url} (defined: {', '.join(declared) or 'none'})"
        )
    return states[read.state]


def rows_of_state(spark: SparkSession, read: StateRead, options: dict[str, str]) -> DataFrame:
    """The rows of the state as format("cowstate") returns them: the key columns first."""
    if read.operator.store_options:
        options = {**options, "storageOptions": json.dumps(dict(read.operator.store_options))}
    reader = spark.read.format("cowstate").options(**options)
    return reader.option("stateVarName", read.state).load(read.operator.url)


def value_column(state: StateSchema, columns: list[str]) -> Column:
    """The value of a value state, as a struct of its fields."""
    names = struct_from_json(state.schema_json).names
    fields = [F.col(f"`{column}`").alias(name) for column, name in zip(columns, names, strict=True)]
    value = F.struct(*fields)
    return (value if state.ttl_ms is None else F.struct(value.alias("value"))).alias("value")


def shown_rows(
    rows: DataFrame, read: StateRead, values: list[Column], before: list[Column] | None = None
) -> DataFrame:
    """The rows with the columns `before`, the key, `values` and the partition."""
    operator = read.operator
    keys = [F.col(f"`{name}`") for name in operator.key_names]
    group = key_group_column(keys, operator.history.max_parallelism)
    parallelism = operator.history.checkpoint_at(read.epoch).parallelism
    subtask = F.floor(group * parallelism / operator.history.max_parallelism).cast("int")
    key = F.struct(*keys).alias("key")
    shown = rows.select(*(before or []), key, *values, subtask.alias("partition_id"))
    if read.partition is None:
        return shown
    return shown.filter(F.col("partition_id") == read.partition)
