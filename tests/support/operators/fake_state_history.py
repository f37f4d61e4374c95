"""A StateHistory in memory, whose files are lists of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from checkpoint_store.errors import VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.spark_schema import parse_spark_schema
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.state_history import StateShape, StateVersion, VersionInfo


@dataclass(frozen=True)
class Row:
    """A row of a file. `values` None means a delete. `state` None means the state of the history's
    shape."""

    key: tuple[Any, ...]
    values: Mapping[str, Any] | None
    sequence: Any = None
    key_group: int = 0
    state: str | None = None


@dataclass
class FakeStateHistory:
    """Versions that a test commits. A file keeps its rows in the shape at the time of the write."""

    shape: StateShape
    max_parallelism: int = 8
    batch_rows: int = 2
    url: str = "memory://fake"
    reads: list[tuple[str, KeyGroupRange]] = field(default_factory=list)
    _files: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    _versions: dict[int, StateVersion] = field(default_factory=dict)

    def commit(self, version: int, rows: Sequence[Row], timestamp_ms: int = 0) -> StateVersion:
        """Commit a version with one more file, on top of the newest version."""
        handle = self.write(version, rows)
        newest = self._versions[max(self._versions)].state if self._versions else ()
        info = VersionInfo(version, timestamp_ms)
        state_version = StateVersion(info, self.shape, (handle,), (*newest, handle))
        self._versions[version] = state_version
        return state_version

    def write(self, version: int, rows: Sequence[Row]) -> StateHandle:
        """Write a file. Rows keep their order within a key group."""
        rows = sorted(rows, key=lambda row: row.key_group)
        name = f"{version}-{len(self._files)}.arrow"
        self._files[name] = _table(rows, self.shape).to_batches(max_chunksize=self.batch_rows)
        groups = [row.key_group for row in rows] or [0]
        key_groups = KeyGroupRange(groups[0], groups[-1])
        return StateHandle("changelog", name, 1, "", key_groups, version, len(rows))

    def replace(self, version: int, *state: StateHandle) -> None:
        """Let these files hold the state of a version."""
        old = self._versions[version]
        self._versions[version] = StateVersion(old.info, old.shape, old.changes, state)

    def delete(self, version: int) -> None:
        """Delete a version, but keep its files."""
        del self._versions[version]

    def versions(self) -> list[int]:
        """See StateHistory."""
        return sorted(self._versions)

    def at(self, version: int) -> StateVersion:
        """See StateHistory."""
        if version not in self._versions:
            raise self.absent(version, self.versions())
        return self._versions[version]

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """See StateHistory."""
        oldest, newest = min(versions, default=None), max(versions, default=None)
        return VersionNotRetainedError(self.url, version, oldest, newest)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory."""
        self.reads.append((handle.name, key_groups))
        wanted = handle.key_groups.intersection(key_groups)
        for batch in self._files[handle.name]:
            groups = batch.column("_key_group").to_pylist()
            mask = [wanted is not None and group in wanted for group in groups]
            yield batch.filter(pa.array(mask, pa.bool_()))


def _table(rows: Sequence[Row], shape: StateShape) -> pa.Table:
    """The rows as a table with the columns of state files; see
    spark_state.keyed_state.state_rows."""
    keys = parse_spark_schema(shape.key_schema_json).fields
    row_type = parse_spark_schema(shape.value_schema_json).arrow
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        name: (key_type.arrow, [row.key[place] for row in rows])
        for place, (name, key_type) in enumerate(keys)
    }
    columns["_key_group"] = (pa.int32(), [row.key_group for row in rows])
    columns["_state"] = (pa.string(), [row.state or shape.state for row in rows])
    columns["_op"] = (pa.string(), ["delete" if row.values is None else "put" for row in rows])
    if shape.sequenced:
        columns["_sequence"] = (pa.int64(), [row.sequence for row in rows])
    arrays: list[Any] = [pa.array(values, arrow_type) for arrow_type, values in columns.values()]
    fields = [pa.field(name, arrow_type) for name, (arrow_type, _) in columns.items()]
    name = shape.state
    while name in columns:
        name += "_"
    fields.append(pa.field(name, row_type, metadata={b"cowstate.state": shape.state.encode()}))
    arrays.append(pa.array([row.values for row in rows], row_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
