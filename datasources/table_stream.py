"""Streaming a state and its changes: `spark.readStream.format("cowstate")`.

An offset says up to where everything was read, and what was before:

    {"version": -1, "after": "snapshot"}   nothing was read: the state comes first, as inserts
    {"version": -1, "after": "nothing"}    nothing was read: changes come, from the oldest version
    {"version": 7, "after": "version"}     version 7 and all before it were read

After "snapshot", the first batch is the state at the newest version. Any other is the changes of
the versions after its start; a preimage needs what the key had at the start, so that state is read,
too, for the keys that changed.

    driver   latestOffset: versions of the store, as many as the limits allow
             partitions:   ranges of key groups
    task     read:         the fold of a range, as Arrow batches

A version is whole or not there: the manifest of an operator's epoch is written when the barriers of
all its subtasks are aligned, a table's version when all tasks of its batch are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from checkpoint_store.key_group_range import KeyGroupRange
from checkpoint_store.state_history import StateHistory
from checkpoint_store.state_reader import StateReader
from datasources.change_columns import with_change_columns
from datasources.key_group_partitions import key_group_ranges, partition_count
from datasources.table_options import StreamOptions
from datasources.version_choice import first_version_since, history_of, version_before

Offset = dict[str, Any]


@dataclass
class StreamPartition(InputPartition):
    """Some key groups of what is read from one offset to another: of the state at version `end` if
    `is_snapshot`, else of its changes since `start` (None: since there was nothing)."""

    key_groups: KeyGroupRange
    start: int | None
    end: int
    is_snapshot: bool


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of a streaming query; `columns` are those that it gives, in order."""

    def __init__(self, options: StreamOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._known: StateHistory | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a query without checkpoint begins. Raises VersionNotRetainedError if changes are to
        begin with a version that is gone."""
        options = self._options
        if options.starting_version is None and options.starting_timestamp is None:
            return _offset(-1, "snapshot")
        versions = self._versions()
        if options.starting_version == "earliest" or not versions:
            return _offset(-1, "nothing")
        if options.starting_version == "latest":
            return _offset(versions[-1])
        first = options.starting_version
        if options.starting_timestamp is not None:
            first = first_version_since(self._history(), options.starting_timestamp)
        assert isinstance(first, int), first
        before = version_before(self._history(), first, versions)
        return _offset(-1, "nothing") if before is None else _offset(before)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes. Raises VersionNotRetainedError when changes after `start`
        are gone, unless failOnDataLoss is false."""
        versions = self._versions()
        if self._target is not None:
            versions = [version for version in versions if version <= self._target]
        after = [version for version in versions if version > start["version"]]
        if not after:
            return start
        if start["after"] == "snapshot":
            return _offset(after[-1])
        if start["after"] == "version" and self._options.fail_on_data_loss:
            self._check_retained(start["version"])
        return _offset(self._limited(after, limit))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Of the limits that the options set, one; `latestOffset` obeys all of them."""
        options = self._options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_epochs_per_trigger is not None or options.max_files_per_trigger is not None:
            return ReadMaxFiles(options.max_files_per_trigger or 2**31 - 1)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The newest version, for the query's progress."""
        versions = self._versions()
        return _offset(versions[-1]) if versions else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing that is committed from now on is read."""
        versions = self._versions()
        self._target = versions[-1] if versions else -1

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Ranges of key groups. Spark asks again after a restart, for the same offsets."""
        if start == end:
            return []
        history, last = self._history(), end["version"]
        is_snapshot = start["after"] == "snapshot"
        if is_snapshot:
            first, files = None, history.at(last).state
        else:
            first = self._base(start)
            if first is not None and first >= last:
                return []
            between = [v for v in self._versions() if (first is None or v > first) and v <= last]
            files = tuple(file for version in between for file in history.at(version).changes)
        size = sum(file.length for file in files)
        count = self._options.num_partitions or partition_count(size)
        return [
            StreamPartition(key_groups, first, last, is_snapshot)
            for key_groups in key_group_ranges(history.max_parallelism, count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition: of a state in no order, of changes by version."""
        assert isinstance(partition, StreamPartition)
        history = history_of(self._options)
        reader = StateReader(history)
        if partition.is_snapshot:
            rows = reader.read(partition.end, partition.key_groups)
            rows = with_change_columns(rows, history.at(partition.end).info)
        else:
            rows = reader.changes(partition.start, partition.end, partition.key_groups)
        yield from _with_columns(rows, self._columns).to_batches()

    def commit(self, end: Offset) -> None:
        """Nothing to do: the store keeps its versions whoever has read them."""

    def stop(self) -> None:
        """Nothing is open."""

    def _history(self) -> StateHistory:
        if self._known is None:
            self._known = history_of(self._options)
        return self._known

    def _versions(self) -> list[int]:
        """Those that can be read now; none while there is no store."""
        try:
            return self._history().versions()
        except NotAStoreError:
            return []

    def _base(self, start: Offset) -> int | None:
        """The version whose state changes are compared with, None if nothing was before."""
        if start["after"] == "nothing":
            return None
        versions = self._versions()
        if start["version"] in versions:
            return int(start["version"])
        if self._options.fail_on_data_loss:
            self._check_retained(start["version"])
        return versions[0]

    def _check_retained(self, version: int) -> None:
        versions = self._versions()
        if version not in versions:
            raise VersionNotRetainedError(
                self._options.url, version, min(versions, default=None), max(versions, default=None)
            )

    def _limited(self, after: Sequence[int], limit: ReadLimit) -> int:
        """The last version of a batch: at least one, and no more than the limits allow."""
        if isinstance(limit, ReadAllAvailable):
            return after[-1]
        options = self._options
        most = options.max_epochs_per_trigger or len(after)
        last, files, size = after[0], 0, 0
        for version in after[:most]:
            changes = self._history().at(version).changes
            files += len(changes)
            size += sum(handle.length for handle in changes)
            beyond = (options.max_files_per_trigger and files > options.max_files_per_trigger) or (
                options.max_bytes_per_trigger and size > options.max_bytes_per_trigger
            )
            if beyond and version != after[0]:
                break
            last = version
        return last


def _offset(version: int, after: str = "version") -> Offset:
    return {"version": version, "after": after}


def _with_columns(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns that the query knows: a version may have more by now, or less at its start."""
    for name in names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows.select(list(names))
