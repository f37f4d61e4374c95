"""Finds the version that options ask for: by number, by time, or the newest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from checkpoint_store.interface_words import OPTIONS, in_words_of
from checkpoint_store.open_history import open_history
from checkpoint_store.provider.provider_store import ProviderStore
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateHistory, StateVersion
from checkpoint_store.states.version_times import VersionTimes
from datasources.options.table_options import ReaderOptions


class Located(Protocol):
    """The part of the options that says where a state is."""

    @property
    def url(self) -> str:
        """The URL of the table, of the operator's store or of the checkpoint."""

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """The options for fsspec."""

    @property
    def store_retry_seconds(self) -> int:
        """How long a failing call to the store is tried again."""

    @property
    def state(self) -> str | ProviderStore | None:
        """Which state of an operator, or which store of a checkpoint; None: the only one."""


def history_of(options: Located) -> StateHistory:
    """Opens the state that options name.

    Raises NotAStoreError, StateNotFoundError, StoreNotFoundError, StateChoiceError, and the errors
    of the object store.
    """
    with in_words_of(OPTIONS):
        return open_history(
            options.url,
            dict(options.storage_options),
            options.state,
            options.store_retry_seconds,
        )


def is_written(options: Located) -> bool:
    """Whether the state has a version. Raises the errors of the object store."""
    try:
        return bool(history_of(options).versions())
    except NotAStoreError:
        return False


def version_at(history: StateHistory, version: int) -> StateVersion | None:
    """The version, or None if the history does not have it. Raises CorruptObjectError."""
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
    """The version whose state is read, or the last version of the change feed."""
    for version in (options.version_as_of, options.ending_version):
        if version is not None:
            return history.at(version).info.version
    for time in (options.timestamp_as_of, options.ending_timestamp):
        if time is not None:
            return StateReader(history).latest_at(time)
    return newest_version(history)


def first_version_since(history: StateHistory, timestamp_ms: int) -> int:
    """The first version that was committed at this time or later.

    If no version is that young, the number that the next version will have.
    """
    versions = history.versions()
    if not versions:
        return 0
    first = VersionTimes(history, versions).first_since(timestamp_ms)
    return versions[-1] + 1 if first is None else first


def version_before(history: StateHistory, first: int, versions: Sequence[int]) -> int | None:
    """The version before version `first`; None if no version was before it.

    The changes from `first` on are computed against the state of that version. Raises
    VersionNotRetainedError if it was deleted.
    """
    older = [version for version in versions if version < first]
    if older:
        return older[-1]
    if versions and versions[0] > 0:
        raise VersionNotRetainedError(history.url, max(first - 1, 0), versions[0], versions[-1])
    return None
