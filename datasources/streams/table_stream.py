"""Streams a state and its changes: `spark.readStream.format("cowstate")`.

An offset holds the progress of the stream, and facts of the state (see state_facts):

    {"version": -1, "after": "snapshot"}   nothing was read: the state comes first, as inserts
    {"version": -1, "after": "nothing"}    nothing was read: changes come, from the oldest version
    {"version": 7, "after": "version"}     version 7 and all earlier versions were read

After "snapshot", the first batch is the state at the newest version. Any other batch has the
changes of the versions after its start. Preimages come from the state at the start. A worker keeps
that state in memory, within a bound, and then reads only later changes.

    driver   latestOffset: as many versions as the limits allow; the store is listed again only
                           after the poll interval, because Spark asks all the time
             partitions:   ranges of key groups and channels, spread over the tasks
    task     read:         the rows of its parts, as Arrow batches

A version of a table is published as a whole, but each subtask of an operator publishes its own
barrier of an epoch. `exactly_once` releases an epoch when the input gate reports the epoch as
aligned. `at_least_once` also reads channels that are ahead, and the offset has the position of each
such channel:

    {"version": 7, "after": "version", "channels": {"1": {"epoch": 8, "run": 3, ...}}}

Once epoch 8 is aligned, the changes of channel 1 are left out if the aligned epoch has the barrier
that the stream has read. If the aligned epoch has another barrier of the channel, because the epoch
was run again, the changes come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.errors import NotAStoreError
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.known_states import KnownStates
from checkpoint_store.states.row_fold import CHANGE_TYPE, COMMIT_WATERMARK
from checkpoint_store.states.state_cache import StateCache
from checkpoint_store.states.state_history import StateHistory
from checkpoint_store.tables.table_history import TableHistory
from datasources.catalog.change_columns import with_change_columns, with_watermark
from datasources.catalog.source_schema import check_columns
from datasources.options.catalog_tables import are_of_catalog
from datasources.options.table_options import StreamOptions, parse_stream_options
from datasources.options.version_choice import history_of, version_at
from datasources.reads.asked_columns import AskedColumns, asked_columns, batches_of
from datasources.reads.key_group_partitions import check_not_rescaled
from datasources.streams.channel_history import ChannelHistory
from datasources.streams.channel_positions import Positions, position_of
from datasources.streams.operator_channels import OperatorChannels, barriers_after
from datasources.streams.state_facts import (
    Facts,
    check_fixed,
    check_same_state,
    fixed_facts,
    watermark_in,
    with_facts,
)
from datasources.streams.stream_batch import Part, StreamBatch, check_retained
from datasources.streams.stream_offset import (
    Offset,
    first_offset,
    offset_at,
    offset_before,
    positions_in,
)
from spark_state.errors import ConfigurationError, CowstateError
from spark_state.spark.session.worker_loading import LoadedInWorkers

# Spark's workers live on from batch to batch, and end after about a minute without a batch.
_KNOWN_STATES = KnownStates()


@dataclass
class StreamPartition(InputPartition):
    """One task's share of a batch. `watermark_ms`: the watermark at the end of the batch; `fixed`:
    the facts that were fixed when the state was created."""

    parts: list[Part]
    watermark_ms: int | None
    fixed: Facts


@dataclass(frozen=True, slots=True)
class _ListedVersions:
    """Versions and channels that could be read at time `listed_at`."""

    listed_at: float
    versions: list[int]
    ahead: Positions


class TableStreamReader(LoadedInWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Source of a streaming query. `columns`: the columns of its rows, in order. `clock`: returns
    seconds since some fixed moment."""

    def __init__(
        self,
        options: StreamOptions,
        columns: AskedColumns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._columns = columns
        self._clock = clock
        self._listed: _ListedVersions | None = None
        self._opened: StateHistory | None = None
        self._channels: OperatorChannels | None = None
        self._target: tuple[int, Positions] | None = None
        self._checked: tuple[Offset, _ListedVersions | None] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """The offset at which a query without checkpoint begins. Raises ChangesLostError if the
        first version to read is gone, unless failOnDataLoss is false."""
        options = self._options
        if options.starting_version is None and options.starting_timestamp is None:
            return offset_at(-1, "snapshot")
        versions = self._versions()
        if versions:
            return first_offset(options, self._history(), versions)
        # A number means a future version; every other option means all future versions.
        first = options.starting_version
        return offset_before(first if isinstance(first, int) else None)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next batch. Raises ChangesLostError if the version of `start` is gone,
        unless failOnDataLoss is false. Raises StateReplacedError if another state has replaced the
        state that the stream has read."""
        end = self._latest(start, limit)
        return start if end is start else with_facts(end, self._history())

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        versions, ahead = self._lately_available()
        if self._target is not None:
            newest, ahead = self._target
            versions = [version for version in versions if version <= newest]
        after = [version for version in versions if version > start["version"]]
        if start["after"] == "snapshot":
            return offset_at(after[-1]) if after else start
        if not after:
            self._check_not_begun_anew(start, versions)
            end = offset_at(start["version"], start["after"], ahead)
            if not ahead:
                return start
            self._check_same_state(start)
            batch = StreamBatch(self._options, self._history(), start, end)
            return end if batch.stretches(positions_in(end)) else start
        self._check_same_state(start)
        if start["after"] == "version" and self._options.fail_on_data_loss:
            check_retained(self._history(), self._versions(), start["version"])
        # If batches are limited, epochs that are not whole come in a separate batch.
        ahead = ahead if isinstance(limit, ReadAllAvailable) else positions_in(start)
        return offset_at(self._limited(after, limit), "version", ahead)

    def _check_not_begun_anew(self, start: Offset, versions: Sequence[int]) -> None:
        """Check a state whose newest version is older than the version of `start`. Raises
        StateReplacedError if another state has replaced the state that the stream has read. For the
        same table raises ChangesLostError, because the versions of a table never go back.

        The epochs of an operator and the batches of a query may go back and run again. Then the
        stream waits, and later compares the repeated version with the version it has read.
        """
        if versions and versions[-1] < start["version"]:
            self._check_same_state(start)
            is_table = isinstance(self._opened, TableHistory) and "table" in start
            if is_table and self._options.fail_on_data_loss:
                check_retained(self._history(), self._versions(), start["version"])

    def _check_same_state(self, start: Offset) -> None:
        """Check that the stream goes on with the state that the stream has read; see state_facts.

        The opened history may hold facts of a former state, so the check opens the state anew, once
        for each listing.
        """
        if "table" not in start or (start, self._listed) == self._checked:
            return
        check_same_state(self._options.url, history_of(self._options), start)
        self._checked = start, self._listed

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a batch for Spark. Spark takes only one limit here, so any limit in the
        options is reported as a limit of files. `latestOffset` obeys all limits of the options."""
        options = self._options
        limits = (options.max_bytes_per_trigger, options.max_versions_per_trigger)
        if options.max_files_per_trigger is None and limits == (None, None):
            return ReadAllAvailable()
        return ReadMaxFiles(options.max_files_per_trigger or 2**31 - 1)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The offset of the newest version, for the query's progress."""
        versions, ahead = self._lately_available()
        return offset_at(versions[-1], "version", ahead) if versions else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the last version to read: versions that are committed from now on are not read."""
        self._listed = None
        versions, ahead = self._lately_available()
        self._target = versions[-1] if versions else -1, ahead

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The share of each task. After a restart Spark asks again for the same offsets. Raises
        ChangesLostError if changes are gone, unless failOnDataLoss is false."""
        if start == end:
            return []
        self._check_same_state(start)
        parts = StreamBatch(self._options, self._history(), start, end).parts()
        tasks = min(len(parts), self._options.num_partitions or len(parts))
        watermark_ms, fixed = watermark_in(end), fixed_facts(self._history())
        return [StreamPartition(parts[task::tasks], watermark_ms, fixed) for task in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's parts. Rows of a state have no order; changes come by version."""
        assert isinstance(partition, StreamPartition)
        history = history_of(self._options)
        check_fixed(self._options.url, history, partition.fixed)
        for part in partition.parts:
            rows = self._rows(history, part)
            if COMMIT_WATERMARK in self._columns.names:
                rows = with_watermark(rows, partition.watermark_ms)
            # Later versions may have more columns than the query, earlier versions may have fewer.
            yield from batches_of(self._columns.of_some(rows))

    def _rows(self, history: StateHistory, part: Part) -> pa.Table:
        if part.ahead:
            assert isinstance(history, OperatorHistory), "a table has no channels"
            history = ChannelHistory(history, part.ahead)
        memory = StateCache(_KNOWN_STATES, self._options.state_cache_bytes)
        reader = StateReader(history, memory if self._options.state_cache_bytes else None)
        if part.is_snapshot:
            rows = reader.read(part.end, part.key_groups)
            rows = with_change_columns(rows, history.at(part.end).info)
        else:
            preimages = self._options.preimages
            rows = reader.changes(part.start, part.end, part.key_groups, preimages=preimages)
        check_not_rescaled(history, part.end, part.partitions)
        return rows

    def _history(self) -> StateHistory:
        if self._opened is None:
            self._opened = history_of(self._options)
        return self._opened

    def _versions(self) -> list[int]:
        """The versions that can be read now; empty while there is no store."""
        try:
            return self._history().versions()
        except NotAStoreError:
            return []

    def _lately_available(self) -> tuple[list[int], Positions]:
        """The last result of `_available`, which is renewed after the poll interval."""
        now, interval = self._clock(), self._options.poll_interval_seconds
        if self._listed is None or now - self._listed.listed_at >= interval:
            self._listed = _ListedVersions(now, *self._available())
        return self._listed.versions, self._listed.ahead

    def _available(self) -> tuple[list[int], Positions]:
        """The versions that may be read, and the positions of channels that may be read further.
        The versions of an operator end with the last aligned epoch."""
        versions = self._versions()
        history = self._opened
        if not isinstance(history, OperatorHistory):
            return versions, {}
        channels = self._channels_on(history, versions)
        channels.arrive(barriers_after(history.published, history.timeline, channels.aligned))
        last = -1 if channels.aligned is None else channels.aligned.epoch
        ahead = {} if self._options.checkpointing_mode == "exactly_once" else channels.ahead()
        positions = {subtask: position_of(name) for subtask, name in ahead.items()}
        # List again: an epoch that was aligned in the meantime is released now.
        return [version for version in history.versions() if version <= last], positions

    def _channels_on(self, history: OperatorHistory, versions: Sequence[int]) -> OperatorChannels:
        """The channels of the live timeline. Opens new channels if there are none yet, or if the
        present channels have followed an epoch that is no longer on the timeline."""
        if self._channels is not None and self._channels.are_on(history.timeline):
            return self._channels
        aligned = None
        if versions:
            newest = history.checkpoint_at(versions[-1])
            aligned = EpochDirectory(newest.epoch, newest.run.number)
        self._channels = OperatorChannels(self._options.checkpointing_mode, aligned)
        return self._channels

    def _limited(self, after: Sequence[int], limit: ReadLimit) -> int:
        """The last version of the next batch. The batch has as many versions as the limits allow,
        but at least one version."""
        if isinstance(limit, ReadAllAvailable):
            return after[-1]
        options = self._options
        most = options.max_versions_per_trigger or len(after)
        last, files, size = after[0], 0, 0
        for version in after[:most]:
            listed = version_at(self._history(), version)
            # A version that was deleted after the listing adds nothing to a batch.
            changes = () if listed is None else listed.changes
            files += len(changes)
            size += sum(handle.length for handle in changes)
            beyond = (options.max_files_per_trigger and files > options.max_files_per_trigger) or (
                options.max_bytes_per_trigger and size > options.max_bytes_per_trigger
            )
            if beyond and version != after[0]:
                break
            last = version
        return last


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a refused stream: raises `error` when Spark asks for offsets, partitions or rows.
    Spark would hide an error from `DataSource.streamReader` behind an error of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error

    prepareForTriggerAvailableNow = initialOffset = latestOffset = _refuse  # noqa: N815
    partitions = read = _refuse


def table_stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a stream that gives Spark rows of `schema`. A ConfigurationError or an error of
    the store gives a RefusedStreamReader."""
    try:
        return _stream_reader(options, schema)
    except CowstateError as error:
        return RefusedStreamReader(error)


def _stream_reader(options: Mapping[str, str], schema: StructType) -> TableStreamReader:
    parsed = parse_stream_options(options)
    if CHANGE_TYPE not in schema.names:
        remedy = 'set option("readChangeFeed", "true"), and keep the column in a schema of your own'
        if are_of_catalog(options):
            remedy = (
                "Spark's catalog fixes the columns of its table. Read the table by its path, "
                f'spark.readStream.format("cowstate").load("{parsed.url}"), or create a table of '
                "its changes, with readChangeFeed 'true' in OPTIONS"
            )
        raise ConfigurationError(
            f"a stream of {parsed.url} has inserts, updates and deletes, but the column "
            f"{CHANGE_TYPE}, which tells them apart, is not read: {remedy}"
        )
    check_columns(parsed, schema)
    return TableStreamReader(parsed, asked_columns(parsed.url, schema))
