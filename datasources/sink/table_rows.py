"""Turns the rows of a sink's task into the rows of a table's file. Pure.

    key columns…    first, under their own names; -0.0 becomes 0.0, every NaN the same NaN
    _key_group      int32; the rows are sorted by key group
    _state          "row"
    _op             "put", or "delete" where deleteWhen is true
    row             struct of all other columns, null for a delete; called "row_" if a key column
                    is called "row"
    _sequence       the value of the column of sequenceBy, for deletes too; only with sequenceBy

Each key comes once. There is an exception: with both sequenceBy and ignoreNullUpdates all rows of a
key come, in the order of their sequence, because each row may change other columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from checkpoint_store.errors import TableSchemaError
from checkpoint_store.files.schema_columns import column_names, selected
from checkpoint_store.files.spark_schema import UnsupportedSparkTypeError, parse_spark_schema
from checkpoint_store.files.state_file import DELETE, PUT
from checkpoint_store.schema_text import schema_text, type_text
from checkpoint_store.states.key_codes import key_codes
from checkpoint_store.states.row_fold import ADDED_COLUMNS
from checkpoint_store.tables.table_file_rows import file_schema, row_structs
from checkpoint_store.tables.table_version import ROW_STATE, TableMetadata
from datasources.errors import DuplicateKeyError, NullKeyError, NullSequenceError
from datasources.options.table_options import SinkOptions
from datasources.sink.event_time_columns import EventTimeColumn
from spark_state.errors import ConfigurationError, KeyGroupError
from spark_state.key_group_assignment import is_hashable_type
from spark_state.key_group_hash import key_groups_of, with_one_nan_and_zero

if TYPE_CHECKING:
    from datasources.sink.delete_condition import DeleteCondition

# pyarrow's type stubs reject arguments that its compute functions accept, such as chunked arrays.
pc: Any = pyarrow.compute

_SHOWN_KEYS = 3
_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Plan of a write, for the driver and the tasks. `schema_json`: the columns of the rows, as
    Spark writes schemas, without nullability. `metadata`: the table's metadata. `event_times`: the
    columns of `withWatermark`."""

    options: SinkOptions
    schema_json: str
    metadata: TableMetadata
    event_times: tuple[EventTimeColumn, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        return column_names(self.metadata.key_schema_json)

    @property
    def key_types(self) -> tuple[str, ...]:
        """Spark's JSON names for the types of the key columns."""
        return tuple(str(field["type"]) for field in _key_fields(self.metadata))

    @property
    def schema(self) -> pa.Schema:
        """All columns, with their types in files."""
        row_type: Any = parse_spark_schema(self.schema_json).arrow
        return pa.schema(list(row_type))

    @property
    def value_names(self) -> tuple[str, ...]:
        """All columns except the key columns."""
        keys = self.key_names
        return tuple(name for name in column_names(self.schema_json) if name not in keys)

    @property
    def file_schema(self) -> pa.Schema:
        schema, sequence_by = self.schema, self.metadata.sequence_by
        return file_schema(
            [schema.field(name) for name in self.key_names],
            [schema.field(name) for name in self.value_names],
            None if sequence_by is None else schema.field(sequence_by).type,
        )


def _key_fields(metadata: TableMetadata) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(metadata.key_schema_json)["fields"]
    return fields


def check_plan(plan: SinkPlan) -> None:
    """Check that the rows of a plan can be written. Raises ConfigurationError for columns and
    conditions that a table cannot have, TableSchemaError for rows without a column that the table
    needs, and KeyGroupError for a key without a stable hash."""
    options, metadata = plan.options, plan.metadata
    if metadata.sequence_by is not None and "on_duplicate" in options.given:
        raise ConfigurationError(
            f"option onDuplicate is {options.on_duplicate!r}, but {options.url} was created with "
            f"sequenceBy {metadata.sequence_by!r}: the row with the greatest value of that column "
            "wins; leave onDuplicate out"
        )
    _check_needed(plan)
    for field in _key_fields(metadata):
        _check_key(field["name"], field["type"])
    _check_columns(plan)
    if options.delete_when is not None:
        _delete_condition(options.delete_when, plan)


def rows_to_write(table: pa.Table, plan: SinkPlan) -> pa.Table:
    """The rows of a file, with `plan.file_schema`. `table`: the rows in the order of arrival.
    Raises DuplicateKeyError, NullKeyError and NullSequenceError, and ConfigurationError if the
    delete condition overflows."""
    rows = _without_null_keys(_as_planned(table, plan), plan)
    _check_sequence(rows, plan)
    counting = _rows_that_count(rows, plan)
    if counting is not None:
        rows = rows.take(_places(counting))
    deleted = _deleted(rows, plan)
    groups = _key_groups(rows, plan)
    # Key groups fit in 16 bits, and NumPy's stable sort of 16-bit numbers is a radix sort.
    order = np.argsort(groups.astype(np.uint16), kind="stable")
    return _file_rows(rows, plan, groups, deleted, order)


def duplicate_keys(tables: Sequence[pa.Table], key_names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Up to three keys with several rows in these tables; empty if all keys differ."""
    if not tables:
        return []
    keys = pa.concat_tables([table.select(list(key_names)) for table in tables])
    codes = key_codes(keys, key_names)
    counts = np.bincount(codes)
    if len(counts) == len(codes):
        return []
    duplicated = np.flatnonzero(counts > 1)[:_SHOWN_KEYS]
    rows = [int(np.argmax(codes == code)) for code in duplicated]
    return [tuple(column[row].as_py() for column in keys.columns) for row in rows]


def _as_planned(table: pa.Table, plan: SinkPlan) -> pa.Table:
    """Select the planned columns, and cast the columns to the planned types. Timestamps need a
    cast, because Spark hands them over in the session's time zone."""
    columns, key_names = [], plan.key_names
    for field in plan.schema:
        column: Any = table.column(field.name)
        if column.type != field.type:
            column = column.cast(field.type)
        if field.name in key_names and pa.types.is_floating(field.type):
            column = with_one_nan_and_zero(column)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=plan.schema).combine_chunks()


def _without_null_keys(rows: pa.Table, plan: SinkPlan) -> pa.Table:
    if plan.options.on_null_key == "keep":
        return rows
    for name in plan.key_names:
        nulls = rows.column(name).null_count
        if nulls and plan.options.on_null_key == "error":
            raise NullKeyError(name, nulls)
        if nulls:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    return rows


def _check_sequence(rows: pa.Table, plan: SinkPlan) -> None:
    if plan.metadata.sequence_by is None:
        return
    column = rows.column(plan.metadata.sequence_by)
    missing = pc.is_null(column, nan_is_null=True)
    count = pc.sum(missing).as_py()
    if count:
        raise NullSequenceError(plan.metadata.sequence_by, count)


def _rows_that_count(rows: pa.Table, plan: SinkPlan) -> _Numbers | None:
    """Indices of the rows for the file, in order; None: all rows."""
    codes = key_codes(rows, plan.key_names)
    keys = codes.max(initial=-1) + 1
    if keys == len(codes):
        return None
    places: _Numbers = np.arange(len(codes))
    if plan.metadata.sequence_by is not None:
        # The sort is stable: among rows with the same sequence the latest arrival stays last.
        ascending = pc.sort_indices(rows.column(plan.metadata.sequence_by))
        places = ascending.to_numpy().astype(np.int64)
        if plan.metadata.ignore_null_updates:
            return places
    elif plan.options.on_duplicate == "error":
        duplicates = duplicate_keys([rows], plan.key_names)
        raise DuplicateKeyError(plan.key_names, tuple(duplicates))
    elif plan.options.on_duplicate == "first":
        places = places[::-1]
    winners = np.empty(keys, np.int64)
    # If several places are assigned to one key, the last assignment stays.
    winners[codes[places]] = places
    return np.sort(winners)


def _deleted(rows: pa.Table, plan: SinkPlan) -> _Flags:
    if plan.options.delete_when is None:
        return np.zeros(rows.num_rows, np.bool_)
    deleted = _delete_condition(plan.options.delete_when, plan)(rows)
    return np.asarray(deleted.to_numpy(zero_copy_only=False), np.bool_)


def _delete_condition(text: str, plan: SinkPlan) -> DeleteCondition:
    # The parser of conditions takes longer to import than all our modules, and few tables have a
    # condition.
    from datasources.sink.delete_condition import compile_delete_condition

    return compile_delete_condition(text, plan.schema)


def _key_groups(rows: pa.Table, plan: SinkPlan) -> npt.NDArray[np.int32]:
    keys = rows.select(list(plan.key_names))
    parts = [
        key_groups_of(batch.columns, plan.key_types, plan.metadata.max_parallelism)
        for batch in keys.to_batches()
    ]
    return np.concatenate([np.empty(0, np.int32), *parts])


def _file_rows(
    rows: pa.Table,
    plan: SinkPlan,
    groups: npt.NDArray[np.int32],
    deleted: _Flags,
    order: _Numbers,
) -> pa.Table:
    schema = plan.file_schema
    row_type = next(field.type for field in schema if field.metadata)
    deleted = deleted[order]
    kept = rows.select(list(plan.key_names)).take(_places(order))
    # A null place gives a null row, so the file does not hold the other columns of a deleted row.
    values = rows.select(list(plan.value_names)).take(_places(order, missing=deleted))
    columns: list[Any] = [
        *kept.columns,
        pa.array(groups[order]),
        pa.repeat(pa.scalar(ROW_STATE), len(order)),
        pa.array([PUT, DELETE]).take(_places(deleted.astype(np.int64))),
        row_structs(values.columns, row_type, pa.array(~deleted)),
    ]
    if plan.metadata.sequence_by is not None:
        columns.append(rows.column(plan.metadata.sequence_by).take(_places(order)))
    return pa.Table.from_arrays(columns, schema=schema)


def _places(numbers: _Numbers, missing: _Flags | None = None) -> Any:
    return pa.array(numbers, pa.int64(), mask=missing)


def _check_needed(plan: SinkPlan) -> None:
    """Check that the rows have the key columns and, with sequenceBy, the column that orders the
    rows of a key. Raises TableSchemaError."""
    names = column_names(plan.schema_json)
    needed = dict.fromkeys(plan.key_names, "a key column of the table")
    if plan.metadata.sequence_by is not None:
        needed[plan.metadata.sequence_by] = "by which the table orders the rows of a key"
    for name, purpose in needed.items():
        if name not in names:
            near = [column for column in names if column.lower() == name.lower()]
            remedy = f"rename {near[0]!r}" if near else "add it to the rows"
            raise TableSchemaError(
                plan.options.url, f"the rows have no column {name!r}, {purpose}", remedy
            )


def _check_key(name: str, spark_type: Any) -> None:
    if not is_hashable_type(str(spark_type)):
        raise KeyGroupError(
            f"key column {name!r} is {type_text(spark_type)}, which has no stable hash and so no "
            "key group: set option keys to columns of booleans, numbers, texts, binaries, dates, "
            "timestamps or intervals of days to seconds (a field of the struct, or a cast)"
        )


def _check_columns(plan: SinkPlan) -> None:
    names = column_names(plan.schema_json)
    for name in names:
        if name.lower() in ADDED_COLUMNS:
            raise ConfigurationError(
                f"column {name!r} has a name that tables use themselves, like "
                f"{', '.join(sorted(ADDED_COLUMNS))}; rename it"
            )
        twins = [other for other in names if other.lower() == name.lower()]
        if len(twins) > 1:
            raise ConfigurationError(
                f"columns {' and '.join(map(repr, twins))} have the same name, whose case does not "
                "count; rename one of them"
            )
    try:
        schema = plan.schema
    except UnsupportedSparkTypeError as error:
        raise ConfigurationError(f"{error}, which a table cannot hold; cast the column") from error
    for field in schema:
        if _holds_interval(field.type):
            raise ConfigurationError(
                f"column {field.name!r} holds an interval of months or years, which Spark does not "
                "hand to Python; cast it to a number of months"
            )
    sequence_by = plan.metadata.sequence_by
    if sequence_by is not None and not _is_ordered(schema.field(sequence_by).type):
        raise ConfigurationError(
            "option sequenceBy names "
            f"{schema_text(selected(plan.schema_json, [sequence_by]))}, which has no "
            "order; allowed are numbers, dates, timestamps, texts and binaries"
        )


def _holds_interval(data_type: pa.DataType) -> bool:
    """True if the type is an interval with months (Spark's year-month or calendar interval), or
    contains such an interval at any depth. pyarrow has no type for Spark's year-month intervals."""
    return pa.types.is_interval(data_type) or any(
        _holds_interval(data_type.field(child).type) for child in range(data_type.num_fields)
    )


def _is_ordered(data_type: pa.DataType) -> bool:
    checks = ("integer", "floating", "decimal", "date", "timestamp", "string", "binary")
    return any(getattr(pa.types, f"is_{check}")(data_type) for check in checks)
