"""The versions of a state in any kind of store, as all readers see the versions.

A version is a table's version, an epoch of a Python operator, or a batch of a query on the
provider. A StateShape and a list of files describe the state; `row_fold` applies the files in
order.

    StateHistory       versions, the files of each version, and the rows of each file
      TableHistory     a table: table.json, versions/
      OperatorHistory  one state of a Python operator: store.json, manifests/
      ProviderHistory  one store of a query on the provider: commits/, state/
    open_history       finds the kind of history at a URL
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from checkpoint_store.errors import VersionMissingError, VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.event_time import NO_WATERMARKS, WriterWatermarks


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A readable version, and the time of its commit (ms since 1970; greater for later versions).

    `watermark_ms`: event time that all writers have reached (ms since 1970), None if the rows have
    no event time; see event_time. `failed_upkeep`: how often the table's writer has failed to fold
    files or to delete old files since the last success.
    """

    version: int
    timestamp_ms: int
    watermark_ms: int | None = None
    failed_upkeep: int = 0


@dataclass(frozen=True, slots=True)
class StateShape:
    """The form of the rows of a state.

    Fields:

        state                   name of the state in the files (`_state`)
        key_schema_json         key columns, as JSON of Spark's StructType
        value_schema_json       all other columns, in the same form
        columns                 names of all columns, in the order that users see; a value column
                                with the name of a key column gets underscores appended
        sequenced               files have a column `_sequence`, and the greatest value wins
        ignores_nulls           a null in a row keeps the value of the key
        kind                    kind of an operator's state; a list or map state has one value
                                column, with the whole list or map
        key_groups_follow_keys  `spark_state.key_group_hash` tells the key group of a key;
                                if false, only the writer knows
        expires                 files tell when values, elements or entries expire
    """

    state: str
    key_schema_json: str
    value_schema_json: str
    columns: tuple[str, ...]
    sequenced: bool = False
    ignores_nulls: bool = False
    kind: str = "value"
    key_groups_follow_keys: bool = True
    expires: bool = False

    @property
    def has_elements(self) -> bool:
        """True if files have a row for each element of a list or map. A value that expires is the
        one element of its key."""
        return self.kind in ("list", "map") or self.expires

    @property
    def needs_state_before(self) -> bool:
        """True if the effect of a change depends on the state before the change."""
        return self.sequenced or self.ignores_nulls or self.has_elements


@dataclass(frozen=True, slots=True)
class StateVersion:
    """A version of a state, with its files.

    Fields:

        changes     files that the version added, in the order in which files apply
        state       files of the whole state, in the same order
        watermarks  progress of the writers in event time
        base        version on which this version was built, None for the first version
        now_ms      time of the version's batch, in ms since 1970: everything with an expiry up to
                    this time is gone; None: nothing has expired
        regroups    keys change their key groups at this version: `state` has the new key groups,
                    `changes` and the preceding version have the former key groups
        partitions  number of partitions of `state`, if a rescale may change the number; else None
    """

    info: VersionInfo
    shape: StateShape
    changes: tuple[StateHandle, ...]
    state: tuple[StateHandle, ...]
    watermarks: WriterWatermarks = NO_WATERMARKS
    base: int | None = None
    now_ms: int | None = None
    regroups: bool = False
    partitions: int | None = None


class StateHistory(Protocol):
    """The versions of one state under one URL. Safe to use from several threads; pickles."""

    @property
    def url(self) -> str:
        """The store's URL, for messages."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""

    def versions(self) -> list[int]:
        """The numbers of the versions that exist now, oldest first. Numbers in between may be
        missing. Costs a few listings. Damaged versions are included: only reading a version shows
        the damage."""

    def at(self, version: int) -> StateVersion:
        """The version with this number. Raises VersionNotRetainedError, which names the existing
        versions, and CorruptObjectError."""

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """The error for a version outside `versions`, the list of all existing versions: a
        VersionMissingError if the version should be there."""

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """Read the rows of a file in the key groups of both `handle.key_groups` and
        `key_groups`."""


def lost_version(start: int, later: Iterable[StateVersion], versions: Sequence[int]) -> int | None:
    """Find a lost version: a version after `start` that is not in `versions`, although one of the
    `later` versions was built on it. Without the lost version, the changes do not lead from `start`
    to the last version. None if no version is lost."""
    bases = (version.base for version in later)
    return next((b for b in bases if b is not None and b > start and b not in versions), None)


def absent_version(
    url: str, version: int, versions: Sequence[int], objects: str
) -> VersionNotRetainedError:
    """The error of `StateHistory.absent` for versions that are numbered without gaps. `objects`:
    the objects to restore, if the version is missing."""
    oldest, newest = min(versions, default=None), max(versions, default=None)
    place = bisect_left(versions, version)
    if oldest is None or newest is None or not 0 < place < len(versions):
        return VersionNotRetainedError(url, version, oldest, newest)
    between = versions[place - 1], versions[place]
    return VersionMissingError(url, version, oldest, newest, between, objects)
