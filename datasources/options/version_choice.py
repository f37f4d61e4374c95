"""Finds the version that options ask for: by number, by time, or the newest."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from checkpoint_store.interface_words import OPTIONS, in_words_of
from checkpoint_store.open_history import open_history
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateHistory, StateVersion
from checkpoint_store.states.version_times import VersionTimes
from datasources.options.table_options import ReaderOptions, StreamOptions


def history_of(options: ReaderOptions | StreamOptions) -> StateHistory:
    """Open the state that the options name. Raises NotAStoreError, StateNotFoundError,
    StoreNotFoundError, StateChoiceError, and the errors of the object store."""
    with in_words_of(OPTIONS):
        return open_history(
            options.url,
            dict(options.storage_options),
            options.state,
            options.store_retry_seconds,
        )


def is_written(options: ReaderOptions | StreamOptions) -> bool:
    """True if the state has a version. Raises the errors of the object store."""
    try:
        return bool(history_of(options).versions())
    except NotAStoreError:
        return False


def version_at(history: StateHistory, version: int) -> StateVersion | None:
    """The version, or None if the history does not have the version. Raises CorruptObjectError."""
    try:
        return history.at(version)
    except VersionNotRetainedError:
        return None


def newest_version(history: StateHistory) -> int:
    """The newest version. Raises VersionNotRetainedError if there is no version."""
    versions = history.versions()
    if not versions:
        raise VersionNotRetainedError(history.url, None, None, None)
    return versions[-1]


def end_version(history: StateHistory, options: ReaderOptions) -> int:
    """The version to read, or the last version of the change feed."""
    for version in (options.version_as_of, options.ending_version):
        if version is not None:
            return history.at(version).info.version
    for time in (options.timestamp_as_of, options.ending_timestamp):
        if time is not None:
            return StateReader(history).latest_at(time)
    return newest_version(history)


def first_version_since(history: StateHistory, timestamp_ms: int) -> int:
    """The first version that was committed at time `timestamp_ms` or later. If no version is that
    late, the number of the next version."""
    versions = history.versions()
    if not versions:
        return 0
    first = VersionTimes(history, versions).first_since(timestamp_ms)
    return versions[-1] + 1 if first is None else first


def version_before(history: StateHistory, first: int, versions: Sequence[int]) -> int | None:
    """The newest of `versions` that is older than version `first`. The changes from `first` on are
    computed against the state of this version.

    If no version is older than `first`: returns None if version 0 still exists, or if there is no
    version at all; raises VersionNotRetainedError if version 0 was deleted.
    """
    older = [version for version in versions if version < first]
    if older:
        return older[-1]
    if versions and versions[0] > 0:
        raise VersionNotRetainedError(history.url, max(first - 1, 0), versions[0], versions[-1])
    return None
