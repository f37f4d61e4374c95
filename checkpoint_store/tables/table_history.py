"""The versions of a table, as readers see versions. See state_history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names, selected
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.remembered import Remembered
from checkpoint_store.states.state_history import (
    StateShape,
    StateVersion,
    VersionInfo,
    absent_version,
)
from checkpoint_store.tables.table_layout import version_name
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import (
    ROW_STATE,
    TableCompaction,
    TableMetadata,
    TableVersion,
    compacted,
)

_REMEMBERED_VERSIONS = 256


@dataclass
class TableHistory:
    """The StateHistory of a table. `metadata`: the table's metadata."""

    table: TableStore
    metadata: TableMetadata
    _remembered: Remembered[int, TableVersion] = field(
        default_factory=lambda: Remembered(_REMEMBERED_VERSIONS), repr=False, compare=False
    )
    _compactions: tuple[TableCompaction, ...] = ()

    @property
    def url(self) -> str:
        return self.table.url

    @property
    def max_parallelism(self) -> int:
        return self.metadata.max_parallelism

    def versions(self) -> list[int]:
        numbers = self.table.versions()
        self._compactions = self.table.compactions()
        return numbers

    def at(self, version: int) -> StateVersion:
        table_version = self._version(version)
        if table_version is None:
            raise self.absent(version, self.versions())
        state = compacted(table_version, self._compactions).state
        info = VersionInfo(
            table_version.version,
            table_version.timestamp_ms,
            table_version.watermarks.least_ms,
            table_version.failed_upkeep,
        )
        return StateVersion(
            info=info,
            shape=shape_of(self.metadata, table_version.schema_json),
            changes=table_version.changes,
            state=state,
            watermarks=table_version.watermarks,
            base=table_version.version - 1 if table_version.version else None,
        )

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """See StateHistory. Versions are numbered without gaps."""
        return absent_version(self.url, version, versions, version_name(version))

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        return self.table.read_rows(handle, key_groups)

    def _version(self, number: int) -> TableVersion | None:
        version = self._remembered.get(number)
        if version is None:
            version = self.table.read_version(number)
            if version is not None:
                self._remembered.put(number, version)
        return version


def shape_of(metadata: TableMetadata, schema_json: str) -> StateShape:
    """The shape of a table's rows, with the columns of `schema_json`."""
    keys = column_names(metadata.key_schema_json)
    columns = column_names(schema_json)
    return StateShape(
        state=ROW_STATE,
        key_schema_json=metadata.key_schema_json,
        value_schema_json=selected(schema_json, [name for name in columns if name not in keys]),
        columns=columns,
        sequenced=metadata.sequence_by is not None,
        ignores_nulls=metadata.ignore_null_updates,
    )
