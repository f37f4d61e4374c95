"""Which versions users mean: the newest, one at a time, the first one since a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from checkpoint_store.open_history import open_history
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.state_history import StateHistory, StateVersion
from checkpoint_store.states.version_times import VersionTimes
from datasources.table_options import ReaderOptions


class Located(Protocol):
    """What options say of where a state is."""

    @property
    def url(self) -> str:
        """The table's or store's."""

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """Those of fsspec."""

    @property
    def store_retry_seconds(self) -> int:
        """How long a call to the store that fails is tried again."""

    @property
    def state_var_name(self) -> str | None:
        """The state of an operator that has several."""


def history_of(options: Located) -> StateHistory:
    """Raises NotAStoreError, StateNotFoundError, and the errors of the object store."""
    return open_history(
        options.url,
        dict(options.storage_options),
        options.state_var_name,
        options.store_retry_seconds,
    )


def is_written(options: Located) -> bool:
    """Whether there is a version. Raises the errors of the object store."""
    try:
        return bool(history_of(options).versions())
    except NotAStoreError:
        return False


def version_at(history: StateHistory, version: int) -> StateVersion | None:
    """None if it is not there. Raises CorruptObjectError."""
    try:
        return history.at(version)
    except VersionNotRetainedError:
        return None


def newest_version(history: StateHistory) -> int:
    """Raises VersionNotRetainedError if there is none."""
    versions = history.versions()
    if not versions:
        raise VersionNotRetainedError(history.url, None, None, None)
    return versions[-1]


def end_version(history: StateHistory, options: ReaderOptions) -> int:
    """The version whose state is read, or the last one of the change feed."""
    for version in (options.version_as_of, options.ending_version):
        if version is not None:
            return history.at(version).info.version
    for time in (options.timestamp_as_of, options.ending_timestamp):
        if time is not None:
            return StateReader(history).latest_at(time)
    return newest_version(history)


def first_version_since(history: StateHistory, timestamp_ms: int) -> int:
    """The first version that was committed at a time or later; after the newest, its successor."""
    versions = history.versions()
    if not versions:
        return 0
    first = VersionTimes(history, versions).first_since(timestamp_ms)
    return versions[-1] + 1 if first is None else first


def version_before(history: StateHistory, first: int, versions: Sequence[int]) -> int | None:
    """The version whose state the changes from `first` on are compared with; None: nothing was
    before. Raises VersionNotRetainedError if what was before is not there any more."""
    older = [version for version in versions if version < first]
    if older:
        return older[-1]
    if versions and versions[0] > 0:
        raise VersionNotRetainedError(history.url, max(first - 1, 0), versions[0], versions[-1])
    return None
