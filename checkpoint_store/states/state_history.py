"""The versions of a state, whoever wrote it: what readers of all stores share.

A version is a table's version, an epoch of a Python operator, or a batch of a query on the
provider. A StateShape and a list of files say what it holds; `row_fold` applies the files in order.

    StateHistory       versions, what each holds, and the rows of its files
      TableHistory     a table: table.json, versions/
      OperatorHistory  one state of a Python operator: store.json, manifests/
      ProviderHistory  one store of a query on the provider: commits/, state/
    open_history       finds out which of them a URL is
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from checkpoint_store.errors import VersionMissingError, VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.event_time import WriterWatermarks


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version that can be read, and when it was committed (ms since 1970; grows).

    `watermark_ms`: how far in event time all its writers are (ms since 1970), None if its rows have
    no event time; see event_time. `failed_upkeep`: how often the writer of a table has failed to
    fold files or to delete old ones since it last succeeded.
    """

    version: int
    timestamp_ms: int
    watermark_ms: int | None = None
    failed_upkeep: int = 0


@dataclass(frozen=True, slots=True)
class StateShape:
    """What the rows of a state are made of.

    `state`: its name in the files (`_state`). `key_schema_json`, `value_schema_json`: key columns
    and the others, as Spark's StructType writes itself. `columns`: the names of all, in the order
    in which users see them; a value column that is called like a key column has underscores
    appended. `sequenced`: files have a column `_sequence`, and the greatest value wins.
    `ignores_nulls`: a null in a row keeps what the key has. `kind`: of an operator's state; a list
    or map state has one value column, which holds the whole list or map. `key_groups_follow_keys`:
    whether `spark_state.key_group_assignment` says in which key group a key is; if not, only its
    writer knows. `expires`: files say when values, elements or entries expire.
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
        """Whether files have a row for each element of a list or map. A value that expires is the
        one element of its key."""
        return self.kind in ("list", "map") or self.expires

    @property
    def needs_state_before(self) -> bool:
        """Whether only the state before a change says what the change makes of it."""
        return self.sequenced or self.ignores_nulls or self.has_elements


@dataclass(frozen=True, slots=True)
class StateVersion:
    """A version: `changes` are the files that it added, `state` those of the whole state, both in
    the order in which they apply. `watermarks`: how far in event time its writers are. `base`: the
    version that it was built upon, None if it is the first. `now_ms`: the time of the version's
    batch, in ms since 1970: what has expired by then is not there; None: nothing has. `regroups`:
    keys are in other key groups in `state` than in `changes` and in the version before.
    `partitions`: how many of them `state` has if a rescale may change it; None: none can."""

    info: VersionInfo
    shape: StateShape
    changes: tuple[StateHandle, ...]
    state: tuple[StateHandle, ...]
    watermarks: WriterWatermarks = field(default_factory=WriterWatermarks)
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
        """The versions that are there now, oldest first; numbers may be missing between them. Takes
        few listings. Damaged versions are among them: only reading one shows that it is."""

    def at(self, version: int) -> StateVersion:
        """Raises VersionNotRetainedError, which names the versions that there are, and
        CorruptObjectError."""

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """The error for a version that is not among `versions`, which are all that there are. It is
        a VersionMissingError if the version should be there."""

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are of `handle.key_groups` and of `key_groups`."""


def lost_version(start: int, later: Iterable[StateVersion], versions: Sequence[int]) -> int | None:
    """A version after `start` that is gone although one of the `later` versions was built upon it,
    so that their changes do not lead from `start` to the last of them. None if there is none."""
    bases = (version.base for version in later)
    return next((b for b in bases if b is not None and b > start and b not in versions), None)


def absent_version(
    url: str, version: int, versions: Sequence[int], objects: str
) -> VersionNotRetainedError:
    """The error of `StateHistory.absent` where versions are numbered without gaps. `objects`: what
    to restore if it is missing."""
    oldest, newest = min(versions, default=None), max(versions, default=None)
    place = bisect_left(versions, version)
    if oldest is None or newest is None or not 0 < place < len(versions):
        return VersionNotRetainedError(url, version, oldest, newest)
    between = versions[place - 1], versions[place]
    return VersionMissingError(url, version, oldest, newest, between, objects)
