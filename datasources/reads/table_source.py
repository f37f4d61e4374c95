"""Reads a state as a DataFrame: `spark.read.format("cowstate")`.

    schema       Spark asks first: the columns of the version to read
    pushFilters  equality on all key columns: only the key groups of these keys are read;
                 equality and ranges on any key column: only files that may have such keys are read
    partitions   ranges of key groups
    read         in a task: the rows of one range, as Arrow batches

Spark tells a source in Python the filters of a query, but not the columns of the query. With the
jar, only the columns of the query are read. In a session without the jar,
`option("columns", "id, total")` or `.schema(...)` names the columns to read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from checkpoint_store.files.key_bounds import ValueRange
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateHistory
from datasources.options.catalog_tables import are_of_catalog, may_be_unwritten
from datasources.options.table_options import ReaderOptions, parse_reader_options
from datasources.options.version_choice import (
    end_version,
    first_version_since,
    history_of,
    is_written,
    version_before,
)
from datasources.reads.asked_columns import AskedColumns, asked_columns, batches_of
from datasources.reads.collection_types import FlattenedColumns
from datasources.reads.key_filters import AskedValues, key_groups_asked_for
from datasources.reads.key_group_partitions import check_not_rescaled, ranges_to_read
from spark_state.errors import ConfigurationError
from spark_state.spark.session.worker_loading import LoadedInWorkers

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Plan of one scan, which reads `columns` of the state at version `end`. If `is_feed`, the scan
    reads the changes after version `start` (None: from the beginning) up to version `end` instead.
    `fills_columns`: True if columns that the version lacks are filled with nulls, as in a read of
    a table of Spark's catalog."""

    options: ReaderOptions
    columns: AskedColumns
    end: int
    start: int | None = None
    is_feed: bool = False
    fills_columns: bool = False


@dataclass
class KeyGroupPartition(InputPartition):
    """Rows of some key groups. `partitions`: the number of the query's partitions when the key
    groups were chosen; None if the number never changes."""

    key_groups: KeyGroupRange
    partitions: int | None = None


class TableReader(LoadedInWorkers, DataSourceReader):
    """Reader of one DataFrame. Reads all rows, whatever the query's filters are."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._asked = AskedValues()

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of key groups. No key group is in two ranges."""
        history = history_of(self._plan.options)
        version = history.at(self._plan.end)
        most = history.max_parallelism
        shape = version.shape
        asked = None
        if shape.key_groups_follow_keys:
            asked = key_groups_asked_for(self._asked.values, shape.key_schema_json, most)
        if asked is not None:
            return [KeyGroupPartition(KeyGroupRange(group, group)) for group in asked]
        ranges = ranges_to_read(self._files(history), most, self._plan.options.num_partitions)
        return [KeyGroupPartition(key_groups, version.partitions) for key_groups in ranges]

    def _files(self, history: StateHistory) -> list[StateHandle]:
        """The files of all partitions together."""
        plan, state = self._plan, history.at(self._plan.end).state
        if not plan.is_feed:
            return [*state]
        start = -1 if plan.start is None else plan.start
        after = [version for version in history.versions() if start < version <= plan.end]
        added = [file for later in in_parallel(history.at, after) for file in later.changes]
        return [*added, *state] if plan.options.preimages else added

    def _ranges(self, history: StateHistory) -> dict[str, ValueRange]:
        """The ranges of key columns that filters ask for."""
        keys = column_names(history.at(self._plan.end).shape.key_schema_json)
        ranges = self._asked.ranges
        return {name: ranges[name] for name in ranges if name in keys}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, in any order."""
        assert isinstance(partition, KeyGroupPartition)
        plan = self._plan
        history = history_of(plan.options)
        reader = StateReader(history)
        if plan.options.flatten_collection_types:
            shape = history.at(plan.end).shape
            flattened = FlattenedColumns.of(shape, plan.options.url)
            names = flattened.stored_names(plan.columns.names)
            state = reader.read(plan.end, partition.key_groups, names, self._ranges(history))
            for rows in flattened.rows(state):
                yield from batches_of(plan.columns.of(rows))
            return
        names = plan.columns.names
        if plan.is_feed:
            preimages, stretch = plan.options.preimages, (plan.start, plan.end)
            table = reader.changes(
                *stretch, partition.key_groups, preimages=preimages, columns=names
            )
        else:
            if plan.fills_columns:
                names = [name for name in names if name in history.at(plan.end).shape.columns]
            table = reader.read(plan.end, partition.key_groups, names, self._ranges(history))
        if plan.start is None:
            # A change feed from the beginning contains a whole state, like a read of the state.
            check_not_rescaled(history, plan.end, partition.partitions)
        asked_of = plan.columns.of_some if plan.fills_columns else plan.columns.of
        yield from batches_of(asked_of(table))


class FilteringTableReader(TableReader):
    """Reader of one DataFrame that gets the filters of the query from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Remember the values that filters ask for. Spark still applies all filters itself."""
        for condition in filters:
            self._asked.add(condition)
            yield condition


class EmptyTableReader(DataSourceReader):
    """Reader of a table of Spark's catalog before the table's first write."""

    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


def table_reader(
    options: Mapping[str, str], schema: StructType, version: int | None
) -> DataSourceReader:
    """The reader that gives Spark rows of `schema`. `version`: the version that the DataFrame
    reads, or the last version of its feed; None to choose the version now. Raises
    ConfigurationError and the store's errors."""
    parsed = parse_reader_options(options)
    columns = asked_columns(parsed.url, schema)
    if may_be_unwritten(options) and not is_written(parsed):
        return EmptyTableReader()
    plan = plan_of(parsed, columns, version)
    return reader_of(replace(plan, fills_columns=are_of_catalog(options)))


def reader_of(plan: ReadPlan) -> TableReader:
    """The reader that the options ask for and the session permits.

    Spark keeps pushed filters as long as the DataFrame exists. A later query on the same DataFrame
    gets the same rows, even with other filters. So pushing is an option, for DataFrames that are
    used once.

    Spark refuses a reader with `pushFilters` while `spark.sql.python.filterPushdown.enabled` is
    false, and does not tell us the setting. Only the worker that pushes filters loads the module
    _PUSHDOWN_WORKER, so a loaded module means that the setting is true.
    """
    pushes = plan.options.push_filters and _PUSHDOWN_WORKER in sys.modules
    return FilteringTableReader(plan) if pushes else TableReader(plan)


def plan_of(options: ReaderOptions, columns: AskedColumns, version: int | None) -> ReadPlan:
    """Plan the read that the options mean, with the versions that exist now. `version`: as for
    `table_reader`. Raises ConfigurationError, VersionNotRetainedError."""
    history = history_of(options)
    end = end_version(history, options) if version is None else history.at(version).info.version
    plan = ReadPlan(options, columns, end)
    if not options.read_change_feed:
        return plan
    first = options.starting_version
    if first is None and options.starting_timestamp is not None:
        first = first_version_since(history, options.starting_timestamp)
    if first is None:
        raise ConfigurationError(
            f"{options.url}: readChangeFeed needs the first version of the feed; set option "
            "startingVersion (0 for all versions), or startingTimestamp"
        )
    if first > plan.end:
        raise ConfigurationError(
            f"{options.url}: the change feed would begin with version {first}, after its end, "
            f"version {plan.end}; begin with version {plan.end} or an earlier one"
        )
    start = version_before(history, first, history.versions())
    return replace(plan, is_feed=True, start=start)
