"""Opens the tables of sinks: when a write is planned, in its tasks, and in its commit.

planning   plan_of_sink   reads or creates the table, and plans the write
declaring  check_sink     makes the same checks for CREATE TABLE, and creates nothing
task       open_table     makes no request: the plan holds everything for a task
commit     open_planned   checks that the table is still the table of the plan
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pyspark.sql.types import StringType, StructType

from checkpoint_store.files.schema_columns import column_names, selected, without_nullability
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableMetadata
from datasources.options.table_options import (
    SinkOptions,
    column_named,
    has_other_columns,
    parse_sink_options,
)
from datasources.sink.event_time_columns import event_time_columns
from datasources.sink.table_rows import SinkPlan, check_plan
from spark_state.errors import ConfigurationError, KeyGroupError

_MOST_OPENED = 64


def plan_of_sink(options: Mapping[str, str], schema: StructType) -> SinkPlan:
    """Plan a write of rows of `schema`; create the table if there is none.

    Raises ConfigurationError for bad options, for a new table without keys, or for an option that
    names a missing column; KeyGroupError; TableMismatchError if the table was created with other
    options; the errors of the store.
    """
    if has_other_columns(options):
        raise ConfigurationError(
            "the catalog's table has options that change its columns (readChangeFeed, columns, "
            "flattenCollectionTypes), so it can only be read: write into the table of the rows"
        )
    parsed = parse_sink_options(options)
    table = TableStore(_store(parsed))
    plan = _plan(parsed, schema, table.stored(), table.url)
    return replace(plan, metadata=table.create(plan.metadata))


def check_sink(options: Mapping[str, str], schema: StructType) -> None:
    """Check that rows of `schema` can be written. Raises like plan_of_sink, and creates nothing."""
    parsed = parse_sink_options(options)
    table = TableStore(_store(parsed))
    table.check(_plan(parsed, schema, table.stored(), table.url).metadata)


def check_new_sink(options: Mapping[str, str], schema: StructType) -> None:
    """Check that rows of `schema` can be written into a new table. Makes no request to the store.
    Raises ConfigurationError and KeyGroupError, like plan_of_sink."""
    parsed = parse_sink_options(options)
    _plan(parsed, schema, None, parsed.url)


@lru_cache(_MOST_OPENED)
def open_table(plan: SinkPlan) -> TableStore:
    """The table of a plan. Each process keeps the tables that it has opened."""
    return _opened(plan)


def open_planned(plan: SinkPlan) -> TableStore:
    """The table of a plan. Raises TableMismatchError if another table is now at the URL."""
    table = _opened(plan)
    table.create(plan.metadata)
    return table


def _plan(
    options: SinkOptions, schema: StructType, stored: TableMetadata | None, url: str
) -> SinkPlan:
    """Plan a write without creating a table. `stored`: the metadata of the existing table, None if
    there is no table."""
    schema_json = without_nullability(schema.json())
    wanted = _wanted(options, schema_json, stored, url)
    plan = SinkPlan(options, schema_json, wanted, event_time_columns(schema))
    check_plan(plan)
    _check_collations(plan, schema)
    return plan


def _opened(plan: SinkPlan) -> TableStore:
    return TableStore(_store(plan.options), metadata=plan.metadata)


def _store(options: SinkOptions) -> ObjectStore:
    return RetryingObjectStore(
        open_object_store(options.url, dict(options.storage_options)), options.store_retry_seconds
    )


def _check_collations(plan: SinkPlan, schema: StructType) -> None:
    """Check that no key has a collation, under which texts of different bytes are equal. Raises
    KeyGroupError."""
    for name in plan.key_names:
        data_type = schema[name].dataType
        if isinstance(data_type, StringType) and data_type != StringType():
            raise KeyGroupError(
                f"key column {name!r} is {data_type.simpleString()}, but a table compares texts by "
                "their bytes: cast it to string, or normalize its spelling, for example with lower"
            )


def _differ_in_case(keys: list[str], stored: TableMetadata) -> bool:
    """True if the names `keys` differ from the table's keys only in upper and lower case. Then the
    plan takes the table's keys, and `check_plan` tells the user to rename the columns."""
    spelled = list(column_names(stored.key_schema_json))
    return keys != spelled and [*map(str.lower, keys)] == [*map(str.lower, spelled)]


def _wanted(
    options: SinkOptions, schema_json: str, stored: TableMetadata | None, url: str
) -> TableMetadata:
    """The metadata that the options ask for. Options that are not set have the table's values."""
    columns = column_names(schema_json)
    if not options.keys and stored is None:
        raise ConfigurationError(
            f"there is no table at {options.url} yet, and option keys is not set: name the columns "
            'that tell rows apart, as in option("keys", "id") or option("keys", "country,city"), '
            "or in OPTIONS (keys 'id') of CREATE TABLE"
        )

    def column_of(option: str, name: str) -> str:
        return column_named(name, columns, f"option {option} of {options.url} names")

    keys = [column_of("keys", name) for name in options.keys]
    if stored is not None and (not keys or _differ_in_case(keys, stored)):
        key_schema_json = stored.key_schema_json
    else:
        key_schema_json = selected(schema_json, keys)
    sequence_by = options.sequence_by
    if sequence_by is not None:
        sequence_by = column_of("sequenceBy", sequence_by)
    if stored is None:
        return TableMetadata(
            table_id=uuid.uuid5(uuid.NAMESPACE_URL, url).hex,
            key_schema_json=key_schema_json,
            max_parallelism=options.max_parallelism,
            sequence_by=sequence_by,
            ignore_null_updates=options.ignore_null_updates,
        )
    given: dict[str, Any] = {
        "sequence_by": sequence_by,
        "max_parallelism": options.max_parallelism,
        "ignore_null_updates": options.ignore_null_updates,
    }
    changed = {name: value for name, value in given.items() if name in options.given}
    return replace(stored, key_schema_json=key_schema_json, **changed)
