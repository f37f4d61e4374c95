"""The versions of a table, as its readers see them. See state_history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoint_store.errors import CorruptObjectError, VersionNotRetainedError
from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.state_handle import StateHandle
from checkpoint_store.state_history import StateShape, StateVersion, VersionInfo
from checkpoint_store.table_layout import version_name
from checkpoint_store.table_schema import column_names, selected
from checkpoint_store.table_store import TableStore
from checkpoint_store.table_version import (
    ROW_STATE,
    TableCompaction,
    TableMetadata,
    TableVersion,
    compacted,
)

_REMEMBERED = 256


@dataclass
class TableHistory:
    """The StateHistory of a table. `metadata` is the table's."""

    table: TableStore
    metadata: TableMetadata
    _known: dict[int, TableVersion] = field(default_factory=dict)
    _compactions: tuple[TableCompaction, ...] = ()

    @property
    def url(self) -> str:
        """See StateHistory."""
        return self.table.url

    @property
    def max_parallelism(self) -> int:
        """See StateHistory."""
        return self.metadata.max_parallelism

    def versions(self) -> list[int]:
        """See StateHistory."""
        numbers = self.table.versions()
        if numbers and self._version(numbers[-1]) is None:
            numbers.pop()
        self._compactions = self.table.compactions()
        # Retention deletes several at once: what is left before a gap is about to go, too.
        count = len(numbers)
        return [one for place, one in enumerate(numbers) if numbers[-1] - one < count - place]

    def at(self, version: int) -> StateVersion:
        """See StateHistory."""
        found = self._version(version)
        if found is None:
            numbers = self.versions()
            if version in numbers[:-1]:
                problem = "it is not whole, and later versions rest on it"
                raise CorruptObjectError(self.url, version_name(version), problem)
            raise VersionNotRetainedError(
                self.url, version, min(numbers, default=None), max(numbers, default=None)
            )
        state = compacted(found, self._compactions).state
        info = VersionInfo(
            found.version, found.timestamp_ms, found.watermarks.least_ms, found.failed_upkeep
        )
        shape = shape_of(self.metadata, found.schema_json)
        return StateVersion(info, shape, found.changes, state, found.watermarks)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory."""
        return self.table.read_rows(handle, key_groups)

    def _version(self, number: int) -> TableVersion | None:
        version = self._known.get(number) or self.table.read_version(number)
        if version is not None and number not in self._known:
            self._known[number] = version
            # Another thread may be doing the same.
            for oldest in [*self._known][:-_REMEMBERED]:
                self._known.pop(oldest, None)
        return version


def shape_of(metadata: TableMetadata, schema_json: str) -> StateShape:
    """The shape of a table's rows when its columns are those of `schema_json`."""
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
