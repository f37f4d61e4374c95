"""Reads a state at any of its versions, whoever wrote it: `open_store`.

No Spark is needed. Files are read several at once and applied in order; of a file no more is kept
than the key groups and the columns that are asked for. Who asks again and again for what changed
since the last time gives the reader a StateMemory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

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
from checkpoint_store.states.known_states import StatePart
from checkpoint_store.states.row_fold import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    PREIMAGE,
    concat_rows,
    distinct_keys,
    flat_schema,
    fold_changes,
    fold_rules,
    fold_state,
    fold_upserts,
    folded_schema,
    rows_of_keys,
)
from checkpoint_store.states.state_history import (
    StateHistory,
    StateShape,
    StateVersion,
    VersionInfo,
    lost_version,
)
from checkpoint_store.states.state_memory import StateMemory
from checkpoint_store.states.version_times import VersionTimes

# The type stubs of pyarrow.compute reject arguments that its functions take, such as plain numbers.
pc: Any = pyarrow.compute

_Added = list[tuple[StateVersion, tuple[StateHandle, ...]]]


def open_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    state: str | ProviderStore | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> StateReader:
    """A reader of what is at `url`: a table, a state of the Python operator whose store it is, or a
    store of the query on the provider whose checkpoint it is.

    `state`: the name of an operator's state, needed if there are several; in a checkpoint a
    ProviderStore, needed for another operator than 0, or one with several stores.

    `storage_options` are fsspec's; a call to the store that fails is tried again for
    `retry_seconds`. Raises NotAStoreError, StateNotFoundError, StoreNotFoundError,
    StateChoiceError, StoreUnavailableError, StoreAccessError.
    """
    return StateReader(open_history(url, storage_options, state, retry_seconds))


class StateReader:
    """The versions of a state: the epochs of an operator, the batches of a query. Safe for several
    threads.

    Columns have the types that `checkpoint_store.files.spark_schema` lists. Every method looks at
    what is there when it is called. All raise VersionNotRetainedError for a version that is not
    there (or if there is none at all), ObjectMissingError and CorruptObjectError for a damaged
    store, StoreUnavailableError, UnsupportedFormatError.
    """

    def __init__(self, history: StateHistory, memory: StateMemory | None = None) -> None:
        self._history = history
        self._memory = memory

    @property
    def url(self) -> str:
        """The table's, the operator's store's, or the checkpoint's."""
        return self._history.url

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns, in order."""
        return column_names(self._version(None).shape.key_schema_json)

    def versions(self) -> list[VersionInfo]:
        """The versions that can be read, oldest first; some numbers may be left out. A damaged one
        is left out with a warning in the log, but a damaged newest version is an error."""
        versions = self._history.versions()
        infos = in_parallel(lambda version: self._info(version, versions), versions)
        return [info for info in infos if info is not None]

    def info(self, version: int | None = None) -> VersionInfo:
        """A version and its time; None means the newest. One listing and at most one read."""
        return self._version(version).info

    def latest_at(self, timestamp_ms: int) -> int:
        """The version that was the newest at a time, in ms since 1970.

        Raises TimestampOutOfRangeError for a time before the oldest version or after the newest:
        what that time's newest version is may still change. A version that is damaged or lost is
        an error for the times at which it may have been the newest.
        """
        versions = self._history.versions()
        if not versions:
            raise self._empty()
        return VersionTimes(self._history, versions).newest_at(timestamp_ms)

    def schema(self, version: int | None = None) -> pa.Schema:
        """The columns of a version; None means the newest."""
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
        """The state at a version: one row for each key, in no particular order.

        `version` None means the newest one, `key_groups` None all, `columns` None all, in the
        order of `schema`. `key_ranges`: by key column, which values are asked for; files that say
        that they have none are not read. Only ranges of integers, dates (as days since 1970) and
        strings count, of columns of that type. Raises UnknownColumnError, which names columns that
        are called alike.
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
    ) -> pa.Table:
        """What the versions after `start` up to `end` changed, with the columns of `schema(end)`:

            _change_type       string: insert, update_preimage, update_postimage or delete
            _commit_version    int64
            _commit_timestamp  timestamp[us, UTC], of whole milliseconds

        Ordered by version. A version's changes of a key are its net result: rows that changed
        nothing, or that were late, leave nothing. `start` None means from nothing: the oldest
        version there is counts as if it had added all it holds. `end` None means the newest.

        To tell what a key was before, the state at `start` is read, for the keys that changed;
        not if it is in the reader's memory.
        Without `preimages` only the changes are read: every put is an update_postimage, and every
        delete a delete without values, and `start` may be gone if the version after it was built
        upon it. The state at `start` is read nevertheless where a row alone does not tell what it
        makes of a key: in lists, maps and what expires, where only preimages are left out; and
        where rows have a sequence, or nulls keep what a key has.

        Raises ValueError if `start` is after `end`.
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
            # Keys leave these key groups there, and other ones come.
            ends = ((start, cut), (cut, last.info.version))
            parts = [self.changes(*each, key_groups, preimages=preimages) for each in ends]
            return pa.concat_tables(parts)
        return self._net_changes(base, added, last, key_groups, preimages)

    def _net_changes(
        self,
        base: StateVersion | None,
        added: _Added,
        last: StateVersion,
        key_groups: KeyGroupRange | None,
        preimages: bool,
    ) -> pa.Table:
        """What the files in `added` made of the state at `base`."""
        shape, schema = last.shape, folded_schema(last.shape)
        rules = fold_rules(shape, schema)
        rows = self._rows_of_versions(added, shape, key_groups)
        infos = [version.info for version, _ in added]
        if not (preimages or shape.needs_state_before):
            return _shown(
                _joined([fold_upserts(table, rules) for table in rows], infos), shape, infos
            )
        changed = _joined(rows, infos)
        before = concat_rows(self._before(base, changed, last, key_groups), shape, schema)
        if shape.has_elements:
            times = [(version.info.version, version.now_ms) for version, _ in added]
            base_ms = None if base is None else base.now_ms
            before, changed = whole_rows(before, changed, shape, base_ms, times)
            rules = whole_rules(shape)
        changes = fold_changes(before, changed, rules)
        if shape.has_elements and not preimages:
            changes = changes.filter(pc.not_equal(changes[CHANGE_TYPE], PREIMAGE))
        return _shown(changes, shape, infos)

    def _rows_of_versions(
        self, added: _Added, shape: StateShape, key_groups: KeyGroupRange | None
    ) -> list[pa.Table]:
        """What each version added; the files of all are read at once. After the last version, none:
        the columns of nothing."""
        schema, wanted = folded_schema(shape), self._all_or(key_groups)
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
        """The rows of the state at `base` that are of the keys in `changed`, in order; all rows if
        the state expires, because any key may have lost something without a row that says so."""
        shape, schema = last.shape, folded_schema(last.shape)
        if not changed.num_rows and not shape.expires:
            return []
        names = fold_rules(shape, schema).key_names
        keys = distinct_keys(changed, names)
        if self._memory is not None:
            part = self._part(shape, key_groups)
            known_state = self._memory.state_at(self._history, base, part)
            if known_state is not None:
                rows = changed.drop_columns([COMMIT_VERSION])
                if not last.regroups:
                    self._memory.followed(part, known_state, rows, last)
                return known_state.rows() if shape.expires else known_state.rows_of(keys)
        flat = flatten(shape, schema)
        if shape.expires:
            return self._read(() if base is None else base.state, key_groups, flat)

        def restricted(batches: Batches) -> pa.Table:
            return rows_of_keys(flat(batches), keys, names)

        return self._read(() if base is None else base.state, key_groups, restricted)

    def _part(self, shape: StateShape, key_groups: KeyGroupRange | None) -> StatePart:
        return StatePart(self._history.url, shape, self._all_or(key_groups))

    def _all_or(self, key_groups: KeyGroupRange | None) -> KeyGroupRange:
        return key_groups or KeyGroupRange(0, self._history.max_parallelism - 1)

    def _version(self, version: int | None) -> StateVersion:
        # Listed even if a version is named: what is known of it may be out of date.
        return self._version_of(self._history.versions(), version)

    def _version_of(self, versions: Sequence[int], version: int | None) -> StateVersion:
        if not versions:
            raise self._empty()
        if version is not None and version not in versions:
            raise self._history.absent(version, versions)
        return self._history.at(versions[-1] if version is None else version)

    def _between(self, start: int | None, last: StateVersion, versions: Sequence[int]) -> _Added:
        """Each version after `start` with the files to apply. Raises VersionMissingError if one
        between them is lost."""
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
        """The columns to fold, which are those of the key and the wanted ones; the wanted ones."""
        schema = flat_schema(shape)
        names = list(shape.columns if columns is None else columns)
        for name in names:
            if name not in shape.columns:
                raise UnknownColumnError(self._history.url, name, shape.columns)
        if shape.has_elements:
            return folded_schema(shape), names
        needed = {*names, *fold_rules(shape, schema).key_names}
        return pa.schema([field for field in schema if field.name in needed]), names

    def _info(self, version: int, versions: Sequence[int]) -> VersionInfo | None:
        """None if the version was deleted since it was listed, or is damaged."""
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
    """The first version at which keys change their key groups, of those before the last. What comes
    first from nothing is read from its state, and so after the change."""
    regrouped = (version.info.version for version, _ in earlier if version.regroups)
    return next(
        (v for v in regrouped if start is not None or v != earlier[0][0].info.version), None
    )


def _joined(tables: Sequence[pa.Table], versions: Sequence[VersionInfo]) -> pa.Table:
    """The rows of versions, one after the other, each with its version. Behind the tables of these
    is one without rows."""
    numbers = [*(info.version for info in versions), 0]
    marked = [
        rows.append_column(COMMIT_VERSION, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
        for number, rows in zip(numbers, tables, strict=True)
    ]
    return pa.concat_tables(marked, promote_options="permissive")


def _shown(changes: pa.Table, shape: StateShape, versions: Iterable[VersionInfo]) -> pa.Table:
    """Changes with the columns that users see."""
    shown = changes.select([*shape.columns, CHANGE_TYPE, COMMIT_VERSION])
    return _with_timestamps(shown, versions)


def _with_timestamps(changes: pa.Table, versions: Iterable[VersionInfo]) -> pa.Table:
    """The changes with the time of each one's version."""
    infos = list(versions)
    numbers = pa.array([info.version for info in infos], pa.int64())
    times: Any = pa.array([info.timestamp_ms * 1000 for info in infos], pa.int64())
    places = pc.index_in(changes[COMMIT_VERSION], value_set=numbers)
    timestamps = times.cast(pa.timestamp("us", "UTC")).take(places)
    return changes.append_column(COMMIT_TIMESTAMP, timestamps)
