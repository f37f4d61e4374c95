"""Reader of the versions of a state, in any kind of store. `open_store` opens a reader.

Reading needs no Spark. Several files are read at a time and applied in order. The reader keeps only
the key groups and columns of a file that the caller asked for. A caller that polls for changes
gives the reader a StateCache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint_store.errors import (
    CorruptObjectError,
    UnknownColumnError,
    VersionNotRetainedError,
)
from checkpoint_store.files.key_bounds import ValueRange, may_hold, rows_in
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import column_names
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.objects.passed_over import tell_passed_over
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.open_history import open_history
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.states.element_changes import whole_rows, whole_rules
from checkpoint_store.states.element_fold import live_elements, whole_collections
from checkpoint_store.states.file_rows import Batches, flatten, read_files, read_files_of_each
from checkpoint_store.states.key_hashes import KeySieve
from checkpoint_store.states.known_states import StatePart
from checkpoint_store.states.row_fold import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    PREIMAGE,
    concat_rows,
    flat_schema,
    fold_changes,
    fold_rules,
    fold_state,
    fold_upserts,
    folded_schema,
)
from checkpoint_store.states.state_cache import StateCache
from checkpoint_store.states.state_history import (
    StateHistory,
    StateShape,
    StateVersion,
    VersionInfo,
    lost_version,
)
from checkpoint_store.states.version_times import VersionTimes

_Added = list[tuple[StateVersion, tuple[StateHandle, ...]]]


@dataclass(frozen=True, slots=True)
class _AskedChanges:
    """The part of the changes that a caller asks for. `key_groups`: None means all. `preimages`:
    False leaves preimages out, see `StateReader.changes`. `names`: the columns of the result."""

    key_groups: KeyGroupRange | None
    preimages: bool
    names: list[str]


def open_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    state: str | ProviderStore | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> StateReader:
    """Open a reader for the state at `url`: a table, a Python operator's store, or the checkpoint
    of a query on the provider.

    `state` chooses one of several states. In an operator's store: the name of a state, needed if
    the operator has several. In a checkpoint: a ProviderStore, needed for an operator other than 0,
    or for an operator with several stores.

    `storage_options` are fsspec's options. A failed call to the store is tried again for
    `retry_seconds`. Raises NotAStoreError, StateNotFoundError, StoreNotFoundError,
    StateChoiceError, StoreUnavailableError, StoreAccessError.
    """
    return StateReader(open_history(url, storage_options, state, retry_seconds))


class StateReader:
    """The versions of a state: the versions of a table, the epochs of an operator, or the batches
    of a query. Safe for several threads.

    Columns have the types in the table of `checkpoint_store.files.spark_schema`. Every method looks
    at the store anew. All methods raise VersionNotRetainedError for an absent version and for a
    store without versions, ObjectMissingError and CorruptObjectError for a damaged store,
    StoreUnavailableError, UnsupportedFormatError.
    """

    def __init__(self, history: StateHistory, memory: StateCache | None = None) -> None:
        self._history = history
        self._memory = memory

    @property
    def url(self) -> str:
        """The URL of the table, of the operator's store, or of the checkpoint."""
        return self._history.url

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return column_names(self._version(None).shape.key_schema_json)

    def versions(self) -> list[VersionInfo]:
        """Return the readable versions, oldest first; numbers may be missing between versions. A
        damaged version is left out with a warning in the log, but a damaged newest version is an
        error."""
        versions = self._history.versions()
        infos = in_parallel(lambda version: self._info(version, versions), versions)
        return [info for info in infos if info is not None]

    def info(self, version: int | None = None) -> VersionInfo:
        """Return a version's number and time; None means the newest version. Takes one listing and
        at most one read."""
        return self._version(version).info

    def latest_at(self, timestamp_ms: int) -> int:
        """Return the version that was the newest at a time. `timestamp_ms`: ms since 1970.

        Raises TimestampOutOfRangeError for a time before the oldest version, and for a time after
        the newest version, because a later commit may still belong to such a time. A damaged or
        lost version is an error for the times at which the version may have been the newest.
        """
        versions = self._history.versions()
        if not versions:
            raise self._empty()
        return VersionTimes(self._history, versions).newest_at(timestamp_ms)

    def schema(self, version: int | None = None) -> pa.Schema:
        """Return the columns of a version; None means the newest version."""
        shape = self._version(version).shape
        schema = flat_schema(shape)
        return pa.schema([schema.field(name) for name in shape.columns])

    def read(
        self,
        version: int | None = None,
        key_groups: KeyGroupRange | None = None,
        columns: Sequence[str] | None = None,
        key_ranges: Mapping[str, ValueRange] | None = None,
    ) -> pa.Table:
        """Read the state at a version: one row for each key, in no particular order.

        `version`: None means the newest version. `key_groups`: None means all. `columns`: None
        means all, in the order of `schema`. `key_ranges`: the wanted values, by key column; a file
        is skipped if its key bounds exclude the wanted values. A range is ignored unless it has
        integers, dates (as days since 1970) or strings, and its column has the same type. Raises
        UnknownColumnError, whose message suggests columns with similar names.
        """
        ranges = key_ranges or {}
        stored = self._version(version)
        shape = stored.shape
        schema, names = self._wanted(shape, columns)
        keys = column_names(shape.key_schema_json)
        unknown = sorted(ranges.keys() - keys)
        if unknown:
            raise UnknownColumnError(self._history.url, unknown[0], keys)
        known_state = None
        if self._memory is not None and columns is None:
            known_state = self._memory.state_at(
                self._history, stored, self._part(shape, key_groups)
            )
        if known_state is None:
            files = [file for file in stored.state if may_hold(file.key_bounds, ranges)]
            rows = self._read(files, key_groups, flatten(shape, schema))
        else:
            rows = known_state.rows()
        state = fold_state(concat_rows(rows, shape, schema), fold_rules(shape, schema))
        if shape.has_elements:
            live = live_elements(state, stored.now_ms)
            state = whole_collections(live, shape.kind, flat_schema(shape))
        return rows_in(state, ranges).select(names)

    def changes(
        self,
        start: int | None,
        end: int | None = None,
        key_groups: KeyGroupRange | None = None,
        *,
        preimages: bool = True,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read the changes of the versions after `start` up to `end`, with the columns of
        `schema(end)` and:

            _change_type       string: insert, update_preimage, update_postimage or delete
            _commit_version    int64
            _commit_timestamp  timestamp[us, UTC], of whole milliseconds

        Rows are ordered by version. The changes of a version are the net result for each key: a row
        that changed nothing, or came late, leaves no change. `start` None means from nothing: the
        oldest version counts as if it had added its whole state. `end` None means the newest
        version.

        A preimage needs the state at `start`. The reader takes this state from its StateCache, if
        possible, and otherwise reads the rows of the changed keys from files.

        Without `preimages` only the changes are read: every put is an update_postimage, and every
        delete is a delete without values. In this case the version `start` may be gone, if the next
        version was built upon `start`. Two kinds of states differ: there the effect of a row
        depends on earlier rows, so the reader always needs the state at `start`:

        - lists, maps and expiring values: the result is as with `preimages`, but without the rows
          of type update_preimage
        - tables with a sequence, and tables where a null keeps the old value: the result is the
          same with and without `preimages`

        `columns`: the wanted columns of the result; None means all. Raises ValueError if `start` is
        after `end`, and UnknownColumnError.
        """
        numbers = self._history.versions()
        last = self._version_of(numbers, end)
        if start is not None and start > last.info.version:
            raise ValueError(
                f"changes from version {start} to {last.info.version}: the start is after the end"
            )
        base = None
        if start is not None and (preimages or last.shape.needs_state_before):
            base = self._version_of(numbers, start)
        added = self._between(start, last, numbers)
        if key_groups is not None and (cut := _first_regrouped(added[:-1], start)) is not None:
            # At `cut`, keys leave these key groups and other keys enter.
            ends = ((start, cut), (cut, last.info.version))
            parts = [
                self.changes(*each, key_groups, preimages=preimages, columns=columns)
                for each in ends
            ]
            return pa.concat_tables(parts)
        names = self._names_of_changes(last.shape, columns)
        asked = _AskedChanges(key_groups, preimages, names)
        return _shown(self._net_changes(base, added, last, asked), names, added)

    def _net_changes(
        self, base: StateVersion | None, added: _Added, last: StateVersion, asked: _AskedChanges
    ) -> pa.Table:
        """Compute the changes that the files in `added` make to the state at `base`."""
        shape, schema = last.shape, folded_schema(last.shape)
        rules = fold_rules(shape, schema)
        infos = [version.info for version, _ in added]
        if not (asked.preimages or shape.needs_state_before):
            needed = {*rules.key_names, *asked.names}
            schema = pa.schema([field for field in schema if field.name in needed])
            rules = fold_rules(shape, schema)
            rows = self._rows_of_versions(added, shape, schema, asked.key_groups)
            return _joined([fold_upserts(table, rules) for table in rows], infos)
        changed = _joined(self._rows_of_versions(added, shape, schema, asked.key_groups), infos)
        before = concat_rows(self._before(base, changed, last, asked.key_groups), shape, schema)
        if shape.has_elements:
            times = [(version.info.version, version.now_ms) for version, _ in added]
            base_ms = None if base is None else base.now_ms
            before, changed = whole_rows(before, changed, shape, base_ms, times)
            rules = whole_rules(shape)
        changes = fold_changes(before, changed, rules, asked.names)
        if shape.has_elements and not asked.preimages:
            changes = changes.filter(pc.not_equal(changes[CHANGE_TYPE], PREIMAGE))
        return changes

    def _rows_of_versions(
        self,
        added: _Added,
        shape: StateShape,
        schema: pa.Schema,
        key_groups: KeyGroupRange | None,
    ) -> list[pa.Table]:
        """Read the rows that each version added. The result has a table for each version and, at
        the end, a table without rows, which has the columns even if `added` is empty. The files of
        all versions are read in parallel."""
        wanted = self._all_or(key_groups)
        files = [handles for _, handles in added]
        read = read_files_of_each(self._history, files, wanted, flatten(shape, schema))
        return [concat_rows(tables, shape, schema) for tables in (*read, ())]

    def _before(
        self,
        base: StateVersion | None,
        changed: pa.Table,
        last: StateVersion,
        key_groups: KeyGroupRange | None,
    ) -> list[pa.Table]:
        """Read the rows of the state at `base` for the keys in `changed`, in the order in which
        rows apply; the result may have rows of other keys, too. Read all rows if the state expires,
        because any key may lose a value by expiry, without a row in `changed`."""
        shape, schema = last.shape, folded_schema(last.shape)
        if not changed.num_rows and not shape.expires:
            return []
        names = fold_rules(shape, schema).key_names
        if self._memory is not None:
            part = self._part(shape, key_groups)
            known_state = self._memory.state_at(self._history, base, part)
            if known_state is not None:
                rows = changed.drop_columns([COMMIT_VERSION])
                if not last.regroups:
                    self._memory.followed(part, known_state, rows, last)
                return known_state.rows() if shape.expires else known_state.rows_of(changed)
        flat = flatten(shape, schema)
        if shape.expires:
            return self._read(() if base is None else base.state, key_groups, flat)
        sieve = KeySieve.of_keys(changed, names)

        def restricted(batches: Batches) -> pa.Table:
            return sieve.passing(flat(batches))

        return self._read(() if base is None else base.state, key_groups, restricted)

    def _part(self, shape: StateShape, key_groups: KeyGroupRange | None) -> StatePart:
        return StatePart(self._history.url, shape, self._all_or(key_groups))

    def _all_or(self, key_groups: KeyGroupRange | None) -> KeyGroupRange:
        return key_groups or KeyGroupRange(0, self._history.max_parallelism - 1)

    def _version(self, version: int | None) -> StateVersion:
        # List versions even for a named version: the history's knowledge may be out of date.
        return self._version_of(self._history.versions(), version)

    def _version_of(self, versions: Sequence[int], version: int | None) -> StateVersion:
        if not versions:
            raise self._empty()
        if version is not None and version not in versions:
            raise self._history.absent(version, versions)
        return self._history.at(versions[-1] if version is None else version)

    def _between(self, start: int | None, last: StateVersion, versions: Sequence[int]) -> _Added:
        """Return each version after `start` with the files to apply. Raises VersionMissingError if
        a version in between is lost."""
        end = last.info.version
        numbers = [number for number in versions if number < end]
        numbers = [number for number in numbers if start is None or number > start]
        later = in_parallel(self._history.at, numbers)
        if start != end:
            later.append(last)
        first = later[0].info.version if start is None else start
        lost = lost_version(first, later, versions)
        if lost is not None:
            raise self._history.absent(lost, versions)
        files = [(version, version.changes) for version in later]
        if start is None:
            files[0] = (later[0], later[0].state)
        return files

    def _read(
        self,
        files: Sequence[StateHandle],
        key_groups: KeyGroupRange | None,
        taken: Callable[[Batches], pa.Table],
    ) -> list[pa.Table]:
        return read_files(self._history, files, self._all_or(key_groups), taken)

    def _wanted(
        self, shape: StateShape, columns: Sequence[str] | None
    ) -> tuple[pa.Schema, list[str]]:
        """Return two values: the columns to fold, which are the key columns and the wanted columns;
        and the names of the wanted columns."""
        schema = flat_schema(shape)
        names = self._known(columns, shape.columns)
        if shape.has_elements:
            return folded_schema(shape), names
        needed = {*names, *fold_rules(shape, schema).key_names}
        return pa.schema([field for field in schema if field.name in needed]), names

    def _names_of_changes(self, shape: StateShape, columns: Sequence[str] | None) -> list[str]:
        return self._known(columns, (*shape.columns, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))

    def _known(self, columns: Sequence[str] | None, all_columns: tuple[str, ...]) -> list[str]:
        """Return the names in `columns`, or `all_columns` if `columns` is None. Raises
        UnknownColumnError for a name that is not in `all_columns`."""
        names = list(all_columns if columns is None else columns)
        for name in names:
            if name not in all_columns:
                raise UnknownColumnError(self._history.url, name, all_columns)
        return names

    def _info(self, version: int, versions: Sequence[int]) -> VersionInfo | None:
        """Return a version's info; None if the version is damaged, or was deleted after the
        listing."""
        try:
            return self._history.at(version).info
        except VersionNotRetainedError:
            return None
        except CorruptObjectError as error:
            if version == versions[-1]:
                raise
            tell_passed_over("version", error)
            return None

    def _empty(self) -> VersionNotRetainedError:
        return VersionNotRetainedError(self._history.url, None, None, None)


def _first_regrouped(earlier: _Added, start: int | None) -> int | None:
    """Return the first version in `earlier` at which keys change key groups, None if no version
    does. If `start` is None, the oldest version is left out: the oldest version's whole state is
    read, and in this state keys are already in the new key groups."""
    regrouped = (version.info.version for version, _ in earlier if version.regroups)
    return next(
        (v for v in regrouped if start is not None or v != earlier[0][0].info.version), None
    )


def _joined(tables: Sequence[pa.Table], versions: Sequence[VersionInfo]) -> pa.Table:
    """Concatenate the rows of versions, and add each row's version. `tables` has one table more
    than `versions`: the last table has no rows."""
    numbers = [*(info.version for info in versions), 0]
    marked = [
        rows.append_column(COMMIT_VERSION, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
        for number, rows in zip(numbers, tables, strict=True)
    ]
    return pa.concat_tables(marked, promote_options="permissive")


def _shown(changes: pa.Table, names: Sequence[str], added: _Added) -> pa.Table:
    """Select the columns `names` of changes. If `names` has the commit timestamp, add the commit
    time of each change's version."""
    if COMMIT_TIMESTAMP in names:
        infos = [version.info for version, _ in added]
        numbers = pa.array([info.version for info in infos], pa.int64())
        times: Any = pa.array([info.timestamp_ms * 1000 for info in infos], pa.int64())
        places = pc.index_in(changes[COMMIT_VERSION], value_set=numbers)
        timestamps = times.cast(pa.timestamp("us", "UTC")).take(places)
        changes = changes.append_column(COMMIT_TIMESTAMP, timestamps)
    return changes.select(names)
