"""The tables that a process writes: opened, and created if they are new, once."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from checkpoint_store.object_store import ObjectStore, open_object_store
from checkpoint_store.retrying_object_store import RetryingObjectStore
from checkpoint_store.table_schema import column_names, selected
from checkpoint_store.table_store import TableStore
from checkpoint_store.table_version import TableMetadata
from datasources.table_options import column_named, missing_keys_error
from datasources.table_rows import RowPlan, row_plan

if TYPE_CHECKING:
    from datasources.table_sink import SinkPlan

_MOST_OPENED = 64
_OPENED: dict[bytes, OpenedTable] = {}


@dataclass(frozen=True)
class OpenedTable:
    """A table that exists, and what becomes of rows that are written into it."""

    store: ObjectStore
    table: TableStore
    metadata: TableMetadata
    rows: RowPlan


def open_table(plan: SinkPlan) -> OpenedTable:
    """The table of a sink as this process knows it; see `open_anew`."""
    key = pickle.dumps(plan)
    if key not in _OPENED:
        _OPENED[key] = open_anew(plan)
        while len(_OPENED) > _MOST_OPENED:
            del _OPENED[next(iter(_OPENED))]
    return _OPENED[key]


def open_anew(plan: SinkPlan) -> OpenedTable:
    """The table of a sink, created if there is none.

    Raises ConfigurationError without keys for a new table or for a column that the rows do not
    have, TableMismatchError when the table was created with other options.
    """
    options = plan.options
    store = RetryingObjectStore(
        open_object_store(options.url, dict(options.storage_options)), options.store_retry_seconds
    )
    table = TableStore(store)
    metadata = table.create(_wanted(plan, table.metadata(), store.url))
    return OpenedTable(store, table, metadata, row_plan(options, metadata, plan.schema_json))


def _wanted(plan: SinkPlan, stored: TableMetadata | None, url: str) -> TableMetadata:
    """What the options ask for, and otherwise what the table has."""
    options, columns = plan.options, column_names(plan.schema_json)
    if not options.keys and stored is None:
        raise missing_keys_error(options.url)
    where = f"option {{}} of {options.url} names"
    key_schema_json = (
        selected(
            plan.schema_json,
            [column_named(name, columns, where.format("keys")) for name in options.keys],
        )
        if options.keys or stored is None
        else stored.key_schema_json
    )
    sequence_by = options.sequence_by
    if sequence_by is not None:
        sequence_by = column_named(sequence_by, columns, where.format("sequenceBy"))
    if stored is None:
        return TableMetadata(
            table_id=uuid.uuid5(uuid.NAMESPACE_URL, url).hex,
            key_schema_json=key_schema_json,
            max_parallelism=options.max_parallelism,
            sequence_by=sequence_by,
            ignore_null_updates=options.ignore_null_updates,
        )
    given = options.given
    return replace(
        stored,
        key_schema_json=key_schema_json,
        sequence_by=sequence_by if "sequence_by" in given else stored.sequence_by,
        max_parallelism=options.max_parallelism
        if "max_parallelism" in given
        else stored.max_parallelism,
        ignore_null_updates=options.ignore_null_updates
        if "ignore_null_updates" in given
        else stored.ignore_null_updates,
    )
