"""The states of Spark's transformWithState, as rows of cowstate's files.

Spark's own reader, `format("statestore")`, reads the states in any encoding. `SparkStates.rows` is
a DataFrame with a row for each row of cowstate's files, see state_rows:

    key_0, key_1, …    the columns of the key
    key_group          int
    state              int: the index of the row's state among the states of the operator
    state_0, …         a struct for each state, null unless the row belongs to this state
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from checkpoint_store.files.element_columns import (
    EXPIRES,
    EXPIRY,
    LIST_ELEMENT,
    LIST_POSITION,
    LIST_VALUE,
    USER_KEY,
    USER_VALUE,
)
from spark_state.keyed_state.expiring_tables import EpochClock
from spark_state.keyed_state.state_kinds import form_of
from spark_state.keyed_state.state_rows import StateEntries, to_table
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.schemas import (
    column_schema,
    key_columns,
    state_descriptor,
    timers_descriptor,
)
from spark_state.spark.adoption.adoption_plan import CHECKPOINT_FORMAT
from spark_state.spark.adoption.operator_adoption_plan import OperatorAdoptionPlan, StateVariable
from spark_state.spark.input.keyed_input import (
    check_key_fields,
    key_group_column,
)
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint
from spark_state.spark.session.session_facts import changed_setting
from spark_state.state_descriptor import StateDescriptor

KEY_GROUP, STATE_INDEX = "key_group", "state"
_VALUE, _EXPIRATION = "value", "ttlExpirationMs"
_REPORT_OF_SNAPSHOTS = "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag"
_HASH_OF_MAPS = "spark.sql.legacy.allowHashOnMapType"
_UNKNOWN_TTL_MS = 1
"""Placeholder for a time to live, which Spark's checkpoints do not have. The processor declares the
time to live in its first epoch."""


@dataclass(frozen=True, slots=True)
class SparkStates:
    """The states of Spark's operator after a batch.

    `key_fields`: the fields of the key; `descriptors`: the states as cowstate keeps them; `rows`:
    the content of the states, see the module; `file_schema`: the columns of cowstate's files.
    """

    key_fields: tuple[StructField, ...]
    descriptors: tuple[StateDescriptor, ...]
    rows: DataFrame
    file_schema: pa.Schema

    @property
    def key_schema_json(self) -> str:
        """The schema of the key as JSON, as in the metadata of a store."""
        fields = [StructField(field.name, field.dataType) for field in self.key_fields]
        return StructType(fields).json()


def checksums(rows: DataFrame) -> dict[int, tuple[int, int]]:
    """Count and hash the rows of each state. Returns, by the index of a state, the number of rows
    and the sum of the rows' hashes. The order of the rows does not change the sum."""
    row_hash = F.xxhash64(*(F.col(name) for name in rows.columns)).cast("decimal(38,0)")
    # Spark hashes no maps without this setting, which says that their order is always the same.
    with changed_setting(rows.sparkSession, _HASH_OF_MAPS, "true"):
        sums = rows.groupBy(STATE_INDEX).agg(F.count("*"), F.sum(row_hash))
        return {index: (count, int(total)) for index, count, total in sums.collect()}


@contextmanager
def in_format_of(spark: SparkSession, checkpoint: QueryCheckpoint) -> Iterator[None]:
    """Prepare the session for Spark's reader, inside the `with` block.

    The reader takes the checkpoint's format version from the session. It also loads stores, which
    would report snapshots to the session's coordinator of state stores. On Spark 4.2 a session has
    no coordinator before its first query, and the read would fail. So the reports are turned off.
    """
    checkpoint_format = "1" if checkpoint.state_ids is None else "2"
    with (
        changed_setting(spark, CHECKPOINT_FORMAT, checkpoint_format),
        changed_setting(spark, _REPORT_OF_SNAPSHOTS, "false"),
    ):
        yield


def adopted_states(
    spark: SparkSession, plan: OperatorAdoptionPlan, max_parallelism: int
) -> SparkStates:
    """The states after the last committed batch. Runs no job.

    Raises KeyGroupError, ConfigurationError, UnsupportedOperationError and StateValueError for
    states that cowstate cannot keep.
    """
    read = [_read(spark, plan, variable) for variable in plan.variables]
    key_type = read[0].schema["key"].dataType
    assert isinstance(key_type, StructType)
    check_key_fields(key_type.fields)
    descriptors = tuple(
        _descriptor(variable, df.schema) for variable, df in zip(plan.variables, read, strict=True)
    )
    entries = [
        _entries(df, variable, plan.batch_ms)
        for variable, df in zip(plan.variables, read, strict=True)
    ]
    types = [df.schema["entry"].dataType for df in entries]
    parts = [
        _placed(df, index, types, key_type, max_parallelism) for index, df in enumerate(entries)
    ]
    clock = EpochClock()
    empty = [
        StateEntries(each.name, form_of(each, STATE_FORMS, clock).serializer, [], [], [])
        for each in descriptors
    ]
    return SparkStates(
        tuple(key_type.fields),
        descriptors,
        reduce(DataFrame.union, parts),
        to_table(key_columns(key_type.fields), empty).schema,
    )


def _read(spark: SparkSession, plan: OperatorAdoptionPlan, variable: StateVariable) -> DataFrame:
    reader = (
        spark.read.format("statestore")
        .option("batchId", plan.epoch)
        .option("operatorId", plan.operator.number)
    )
    if variable.kind == "timers":
        reader = reader.option("readRegisteredTimers", "true")
    else:
        reader = reader.option("stateVarName", variable.name)
    if variable.kind == "list":
        # Only the whole array shows the order of the elements.
        reader = reader.option("flattenCollectionTypes", "false")
    return reader.load(plan.checkpoint.url)


def _descriptor(variable: StateVariable, schema: StructType) -> StateDescriptor:
    match variable.kind:
        case "timers":
            return timers_descriptor(variable.name)
        case "list":
            collection = schema[LIST_VALUE].dataType
            assert isinstance(collection, ArrayType)
            schemas = [_plain(collection.elementType, variable)]
        case "map":
            user_key = schema[USER_KEY].dataType
            assert isinstance(user_key, StructType)
            schemas = [user_key, _plain(schema[USER_VALUE].dataType, variable)]
        case _:
            schemas = [_plain(schema[_VALUE].dataType, variable)]
    columns = column_schema(variable.kind, variable.name, schemas)
    ttl_ms = _UNKNOWN_TTL_MS if variable.expires else None
    return state_descriptor(variable.name, variable.kind, columns.json(), ttl_ms)


def _plain(value: DataType, variable: StateVariable) -> StructType:
    """The type of a value, without the expiration time that Spark stores beside a value."""
    if variable.expires:
        assert isinstance(value, StructType)
        value = value[_VALUE].dataType
    assert isinstance(value, StructType)
    return value


def _entries(df: DataFrame, variable: StateVariable, batch_ms: int) -> DataFrame:
    """The entries of a state: a column with the key, and a column with the struct of the entry.
    Leaves out entries that have expired at time `batch_ms`, because no later batch would see such
    entries."""
    rows, held, before = df, F.col(_VALUE), list[Column]()
    match variable.kind:
        case "timers":
            entry = F.struct(F.col("expiration_timestamp_ms").alias(EXPIRY))
            return df.select("key", entry.alias("entry"))
        case "list":
            rows = df.select("key", F.posexplode(LIST_VALUE).alias(LIST_POSITION, "held"))
            held, before = F.col("held"), [F.col(LIST_POSITION).cast("bigint").alias(LIST_POSITION)]
        case "map":
            held, before = F.col(USER_VALUE), [F.col(USER_KEY)]
    value = held[_VALUE] if variable.expires else held
    if variable.kind == "value":
        names = _plain(df.schema[_VALUE].dataType, variable).names
        parts = [value.getField(name).alias(name) for name in names]
    else:
        name = LIST_ELEMENT if variable.kind == "list" else USER_VALUE
        parts = [*before, value.alias(name)]
    if variable.expires:
        rows = rows.where(held[_EXPIRATION] > batch_ms)
        parts.append(held[_EXPIRATION].alias(EXPIRES))
    return rows.select("key", F.struct(*parts).alias("entry"))


def _placed(
    df: DataFrame, index: int, types: list[DataType], key: StructType, max_parallelism: int
) -> DataFrame:
    keys = [F.col("key").getField(field.name) for field in key.fields]
    states = [
        F.col("entry") if place == index else F.lit(None).cast(data_type)
        for place, data_type in enumerate(types)
    ]
    return df.select(
        *(column.alias(f"key_{place}") for place, column in enumerate(keys)),
        key_group_column(keys, max_parallelism).alias(KEY_GROUP),
        F.lit(index).alias(STATE_INDEX),
        *(column.alias(f"state_{place}") for place, column in enumerate(states)),
    )
