"""A small table with a single key column, written version by version, and the rows for readers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from checkpoint_store.files.schema_columns import without_nullability
from checkpoint_store.files.spark_schema import parse_spark_schema
from checkpoint_store.files.state_file import DELETE, OP, PUT, STATE
from checkpoint_store.files.state_handle import StateFileKind, StateHandle
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.row_fold import SEQUENCE
from checkpoint_store.tables.table_history import TableHistory
from checkpoint_store.tables.table_store import Finish, TableCommit, TableFileWriter, TableStore
from checkpoint_store.tables.table_version import ROW_STATE, TableMetadata, TableVersion
from tests.support.manual_clock import ManualClock

MAX_PARALLELISM = 4
FIRST_MS = 1_000_000

Values = tuple[Any, ...]


def schema_json(**types: Any) -> str:
    """The schema of columns by name, in the JSON form of tables."""
    fields = [
        {"name": name, "type": spark_type, "nullable": True} for name, spark_type in types.items()
    ]
    return without_nullability(json.dumps({"type": "struct", "fields": fields}))


COLUMNS = schema_json(id="long", name="string", count="integer")
METADATA = TableMetadata("table-1", schema_json(id="long"), MAX_PARALLELISM, None, False)
SEQUENCED = replace(METADATA, sequence_by="at")


@dataclass(frozen=True)
class Row:
    """A row of a file. `values`: all columns but the key; None for a delete."""

    id: int
    values: Values | None
    sequence: int = 0


def put(id: int, *values: Any, sequence: int = 0) -> Row:
    """A row with these values."""
    return Row(id, values, sequence)


def gone(id: int, sequence: int = 0) -> Row:
    """A delete of a key."""
    return Row(id, None, sequence)


def file_table(rows: Iterable[Row], columns: str = COLUMNS, *, sequenced: bool = False) -> pa.Table:
    """The rows as a table with the columns of files. The key group of a key is key modulo
    MAX_PARALLELISM."""
    rows = sorted(rows, key=lambda row: row.id % MAX_PARALLELISM)
    key, *values = parse_spark_schema(columns).fields
    of_row = pa.struct([(name, value_type.arrow) for name, value_type in values])
    structs = [
        None if row.values is None else dict(zip(of_row.names, row.values, strict=True))
        for row in rows
    ]
    fields: list[tuple[pa.Field[Any], list[Any]]] = [
        (pa.field(key[0], key[1].arrow), [row.id for row in rows]),
        (pa.field("_key_group", pa.int32()), [row.id % MAX_PARALLELISM for row in rows]),
        (pa.field(STATE, pa.string()), [ROW_STATE] * len(rows)),
        (pa.field(OP, pa.string()), [DELETE if row.values is None else PUT for row in rows]),
        (pa.field(ROW_STATE, of_row, metadata={b"cowstate.state": b"row"}), structs),
    ]
    if sequenced:
        fields.append((pa.field(SEQUENCE, pa.int64()), [row.sequence for row in rows]))
    arrays = [pa.array(column, field.type) for field, column in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema([field for field, _ in fields]))


def clock() -> ManualClock:
    """A clock that begins at `FIRST_MS`. Each look lets a second pass."""
    return ManualClock(FIRST_MS / 1000 - 1, step=1)


# Each commit has a new run: a query that repeats a batch was started again.
RUNS = (f"run-{number}" for number in itertools.count())


MergeFiles = Callable[[TableVersion], tuple[StateHandle, ...]]


def merging(merge: MergeFiles) -> Finish:
    """A `finish` function that replaces the state files of a version by the files from `merge`."""
    return lambda version: replace(version, state=merge(version))


@dataclass
class ScriptedTable:
    """A query (or a batch job) that writes a table in `store`."""

    store: ObjectStore
    writer: str = "query-a"
    metadata: TableMetadata = METADATA
    is_query: bool = True
    now: Callable[[], float] = field(default_factory=clock)

    def __post_init__(self) -> None:
        self.table = TableStore(self.store, now=self.now)
        self.table.create(self.metadata)

    def write(
        self,
        batch: int,
        rows: Iterable[Row],
        columns: str = COLUMNS,
        subtask: int = 0,
        kind: StateFileKind = "changelog",
    ) -> StateHandle:
        """Write a file without committing the file."""
        table = file_table(rows, columns, sequenced=self.metadata.sequence_by is not None)
        return self.table.write_rows(kind, table, TableFileWriter(self.writer, batch, subtask, 0))

    def publish(
        self,
        batch: int,
        files: Sequence[StateHandle],
        columns: str = COLUMNS,
        merge: MergeFiles | None = None,
        finish: Finish | None = None,
        **options: Any,
    ) -> TableVersion:
        """Commit files. `merge`: returns the state files of the version. `finish`: see
        TableStore.commit. `options`: merges_schema, takes_over."""
        run = next(RUNS) if self.is_query else None
        commit = TableCommit(self.writer, run, batch, columns, tuple(files), **options)
        if merge is not None:
            finish = merging(merge)
        return self.table.commit(commit, finish)

    def commit(self, batch: int, *rows: Row, takes_over: bool = False) -> TableVersion:
        """Write the rows as a single file, and commit the file."""
        return self.publish(batch, [self.write(batch, rows)], takes_over=takes_over)


def reader_of(store: ObjectStore) -> StateReader:
    """A new reader without knowledge of the table."""
    table = TableStore(store)
    metadata = table.metadata()
    assert metadata is not None, "there is no table"
    return StateReader(TableHistory(table, metadata))


def state_of(store: ObjectStore, version: int | None = None) -> dict[int, Values]:
    """The rows of a version, by key; None means the newest version."""
    return by_key(reader_of(store).read(version))


def by_key(rows: pa.Table) -> dict[int, Values]:
    """All other columns, by key. Each key has one row."""
    values = {row[0]: row[1:] for row in (tuple(record.values()) for record in rows.to_pylist())}
    assert len(values) == rows.num_rows
    return values
