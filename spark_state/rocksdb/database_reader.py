"""Reader for the rows of a RocksDB database in a store, used by checkpoint_store's readers, which
have no backend. See checkpoint_store's module database_readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa

from checkpoint_store.files.database_contents import DatabaseContents, DatabaseState
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import StateHostError
from spark_state.keyed_state.expiring_tables import EpochClock
from spark_state.keyed_state.full_snapshot import KeptEntries, tables_of
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.keyed_state.state_kinds import form_of
from spark_state.rocksdb.database import ReadOnlyDatabase
from spark_state.rocksdb.restored_database import ROWS_VERSION
from spark_state.rocksdb.rocksdb_snapshot import kept_rows
from spark_state.rocksdb.state_rows_format import state_rows_format
from spark_state.state_descriptor import StateDescriptor, StateKind


def read_database(
    folder: Path, source: Source, contents: DatabaseContents, key_groups: KeyGroupRange
) -> Iterator[pa.RecordBatch]:
    """Read the rows of `key_groups`, see DatabaseReader. Raises StateHostError if this release
    cannot read the rows' version."""
    if contents.rows_version != ROWS_VERSION:
        raise StateHostError(
            f"{source.name} in {source.url} is a database with rows of version "
            f"{contents.rows_version}, and this release reads version {ROWS_VERSION}: run the "
            "release that wrote it, or a newer one"
        )
    schema = contents.key_schema
    key_columns = KeyColumns(tuple(schema.names), tuple(schema.types), contents.key_type_names)
    families = [family for state in contents.states for family in state.families]
    with ReadOnlyDatabase(folder, families) as database:
        states = [_entries(state, key_columns, database) for state in contents.states]
        for table, _ in tables_of(key_columns, states, key_groups):
            yield from table.to_batches()


def _entries(
    state: DatabaseState, key_columns: KeyColumns, database: ReadOnlyDatabase
) -> KeptEntries:
    descriptor = StateDescriptor(
        state.name, cast(StateKind, state.kind), state.value_type, state.schema_json, state.ttl_ms
    )
    form = form_of(descriptor, PLAIN_FORMS, EpochClock())
    rows = state_rows_format(descriptor, form.serializer, key_columns, PLAIN_FORMS)
    return kept_rows(rows, state.families[0], lambda: database)
