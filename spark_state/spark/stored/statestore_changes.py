"""Changes of an operator's states with the columns of Spark's own state reader.

    batch_id, change_type, key, then the columns of the state as in statestore_columns, and
    partition_id

    value   "update" with the new value; "delete" if the value is gone
    list    "append" for each element after the old elements; if old elements changed, "update"
            with the first element and "append" with each later element; "delete" if the list is
            gone
    map     "update" for each new or changed entry, "delete" for each entry that is gone

Spark shows every call of a processor. Here a batch shows the result of its calls.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from checkpoint_store.files.element_columns import (
    LIST_ELEMENT,
    LIST_VALUE,
    MAP_VALUE,
    USER_KEY,
    USER_VALUE,
)
from spark_state.processor.schemas import holds_map
from spark_state.processor.stored_schema import struct_from_json
from spark_state.spark.stored.statestore_columns import (
    StateRead,
    declared_state,
    rows_of_state,
    shown_rows,
    value_column,
)

_BEFORE, _AFTER, _CHANGE = "_cowstate_before", "_cowstate_after", "_cowstate_change"
_TYPE, _BATCH = "_change_type", "_commit_version"


def changes_frame(spark: SparkSession, read: StateRead, first: int) -> DataFrame:
    """The changes of a state from batch `first` on."""
    state = declared_state(read)
    if state.kind == "value":
        return _of_values(spark, read, state, first)
    schema = struct_from_json(state.schema_json)
    rows = _before_and_after(_changed_rows(spark, read, first, preimages=True), read)
    if state.kind == "list":
        changes = _changes_of_list(schema[LIST_VALUE].dataType)
    else:
        changes = _changes_of_map(schema[MAP_VALUE].dataType)
    changed = rows.select("*", F.explode(changes).alias(_CHANGE))
    values = [F.col(_CHANGE)[name].alias(name) for name in _NAMES[state.kind]]
    if state.ttl_ms is not None:
        values[-1] = _expiring(values[-1], _NAMES[state.kind][-1])
    before = [F.col(_BATCH).alias("batch_id"), F.col(_CHANGE)["type"].alias("change_type")]
    return shown_rows(changed, read, values, before)


_NAMES = {"list": (LIST_ELEMENT,), "map": (USER_KEY, USER_VALUE)}


def _of_values(spark: SparkSession, read: StateRead, state: StateSchema, first: int) -> DataFrame:
    rows = _changed_rows(spark, read, first, preimages=False)
    columns = rows.columns[len(read.operator.key_names) : -3]
    deletes = F.col(_TYPE) == "delete"
    change_type = F.when(deletes, "delete").otherwise("update").alias("change_type")
    value = F.when(~deletes, value_column(state, columns)).alias("value")
    return shown_rows(rows, read, [value], [F.col(_BATCH).alias("batch_id"), change_type])


def _changed_rows(
    spark: SparkSession, read: StateRead, first: int, *, preimages: bool
) -> DataFrame:
    options = {
        "readChangeFeed": "true",
        "preimages": str(preimages).lower(),
        "startingVersion": str(first),
        "endingVersion": str(read.epoch),
    }
    return rows_of_state(spark, read, options)


def _before_and_after(rows: DataFrame, read: StateRead) -> DataFrame:
    """A row for each key and batch, with the collection before and after the batch; null if there
    is no collection."""
    keys = [F.col(f"`{name}`") for name in read.operator.key_names]
    collection = F.col(f"`{rows.columns[len(keys)]}`")
    came = F.col(_TYPE).isin("insert", "update_postimage")
    return rows.groupBy(*keys, _BATCH).agg(
        F.first(F.when(~came, collection), ignorenulls=True).alias(_BEFORE),
        F.first(F.when(came, collection), ignorenulls=True).alias(_AFTER),
    )


def _changes_of_list(data_type: DataType) -> Column:
    assert isinstance(data_type, ArrayType)
    before, after = F.col(_BEFORE), F.col(_AFTER)

    def change(kind: str | Column, element: Column) -> Column:
        type_column = F.lit(kind) if isinstance(kind, str) else kind
        return F.struct(type_column.alias("type"), element.alias(LIST_ELEMENT))

    def replaced(element: Column, place: Column) -> Column:
        return change(F.when(place == 0, "update").otherwise("append"), element)

    length_before = F.coalesce(F.size(before), F.lit(0))
    kept = F.slice(_comparable(after, data_type), 1, F.greatest(length_before, F.lit(1)))
    goes_on = before.isNull() | (
        (F.size(after) > length_before) & (kept == _comparable(before, data_type))
    )
    new = F.slice(after, length_before + 1, F.greatest(F.size(after) - length_before, F.lit(0)))
    gone = F.array(change("delete", F.lit(None).cast(data_type.elementType)))
    return (
        F.when(after.isNull(), gone)
        .when(goes_on, F.transform(new, lambda element: change("append", element)))
        .otherwise(F.transform(after, replaced))
    )


def _changes_of_map(data_type: DataType) -> Column:
    assert isinstance(data_type, MapType)
    no_entry = F.lit(None).cast(data_type.valueType)
    nothing = F.map_from_arrays(
        F.array().cast(ArrayType(data_type.keyType)), F.array().cast(ArrayType(data_type.valueType))
    )
    before, after = F.coalesce(F.col(_BEFORE), nothing), F.coalesce(F.col(_AFTER), nothing)

    def change(kind: str, user_key: Column, value: Column) -> Column:
        return F.struct(
            F.lit(kind).alias("type"), user_key.alias(USER_KEY), value.alias(USER_VALUE)
        )

    new = F.array_except(_comparable(after, data_type), _comparable(before, data_type))
    gone = F.array_except(F.map_keys(before), F.map_keys(after))
    return F.concat(
        F.transform(gone, lambda user_key: change("delete", user_key, no_entry)),
        F.transform(
            new, lambda entry: change("update", entry["key"], F.element_at(after, entry["key"]))
        ),
    )


def _comparable(value: Column, data_type: DataType) -> Column:
    """A value that Spark can compare: maps, which Spark does not compare, become arrays of
    entries."""
    match data_type:
        case MapType(keyType=key, valueType=item):
            entry = StructType().add("key", key).add("value", item)
            return _comparable(F.map_entries(value), ArrayType(entry))
        case ArrayType(elementType=element) if holds_map(element):
            return F.transform(value, lambda held: _comparable(held, element))
        case StructType(fields=fields) if holds_map(data_type):
            parts = [_comparable(value[f.name], f.dataType).alias(f.name) for f in fields]
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def _expiring(value: Column, name: str) -> Column:
    """A value in a struct with the field `value`, as Spark shows a value that expires."""
    return F.when(value.isNotNull(), F.struct(value.alias("value"))).alias(name)
