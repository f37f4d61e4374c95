"""What keeps a table small beside its commits: folding files, deleting old versions and orphans.

    before a commit   the newest files of the state are folded to fewer, if it is time
    after it          old versions are deleted; now and then, so are files that nothing names

None of it can fail a batch. Rows that a version names are the table's, and a query that failed
after its commit would fail there again after every restart. A chore that fails leaves the table as
it was. It is logged once for each kind of error, counted in the versions that come
(`failed_upkeep`), and tried again 1, 2, 4, … commits later. `cowstate compact` is not upkeep: its
user asks for it, so it fails if it cannot be done.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from checkpoint_store.errors import (
    CheckpointStoreError,
    StoreAccessError,
    StoreUnavailableError,
)
from checkpoint_store.object_store import ObjectStore, open_object_store
from checkpoint_store.retrying_object_store import RetryingObjectStore
from checkpoint_store.state_handle import StateHandle
from checkpoint_store.table_compaction import MergeBounds, merge_files
from checkpoint_store.table_retention import retain_versions, sweep_table_orphans
from checkpoint_store.table_store import TableStore
from checkpoint_store.table_version import TableMetadata, TableVersion
from datasources.table_options import SinkOptions

_LOG = logging.getLogger(__name__)
_VERSIONS_PER_SWEEP = 100
_ORPHAN_GRACE_SECONDS = 86_400
_MOST_COMMITS_BETWEEN = 32
_MOST_TABLES = 64
# How long a commit waits for upkeep. What fails is tried again at a later one.
_RETRY_SECONDS = 5.0
_UNFOLDED = "Until then its files stay as they are, and reads get slower."
_FOLDING_NEEDS = (
    "The writer must be able to read the table's files, and have room for another one; option "
    "autoCompactBytes set to 0 leaves folding to the command cowstate compact"
)
_UNDELETED = "Until then nothing is deleted."
_DELETION_NEEDS = (
    "The writer must be allowed to list and to delete the objects below the table's URL"
)
# Other errors say themselves what to do, or are no fault of the store.
_REFUSALS = (StoreAccessError, OSError, MemoryError)
_T = TypeVar("_T")


@dataclass
class Chore:
    """One kind of upkeep of a table: how often it failed since it last worked, and the version from
    which on it is tried again. `effect`: what follows from a failure; `needs`: what it asks of the
    store."""

    name: str
    effect: str
    needs: str
    failures: int = 0
    due: int = 0
    _failed_at: int = 0
    _logged: set[str] = field(default_factory=set)

    def is_due(self, version: int) -> bool:
        """Whether it is time to try it beside the commit of `version`. Versions that go back are
        those of a table that was made anew."""
        return not self._failed_at <= version < self.due

    def worked(self) -> None:
        """From now on it is tried at every commit, and a failure is news."""
        self.failures = self.due = 0
        self._logged.clear()

    def failed(self, version: int, kind: str) -> bool:
        """It failed beside the commit of `version`; whether that is the first failure of its
        kind."""
        self._failed_at = version
        self.due = version + min(1 << self.failures, _MOST_COMMITS_BETWEEN)
        self.failures += 1
        is_news = kind not in self._logged
        self._logged.add(kind)
        return is_news


class TableUpkeep:
    """The upkeep of the table in `store`, and what failed of it in this process."""

    def __init__(self, store: ObjectStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._table = TableStore(store)
        self._now = now
        self._folding = Chore("folding files", _UNFOLDED, _FOLDING_NEEDS)
        self._retention = Chore("deleting old versions", _UNDELETED, _DELETION_NEEDS)
        self._sweep = Chore("deleting orphans", _UNDELETED, _DELETION_NEEDS)

    @property
    def failures(self) -> int:
        """How often upkeep failed since it last worked, all chores together."""
        return sum(chore.failures for chore in (self._folding, self._retention, self._sweep))

    def folded(
        self, metadata: TableMetadata, version: TableVersion, bounds: MergeBounds
    ) -> tuple[StateHandle, ...]:
        """The files of the state of a version that is about to be committed, some of them folded;
        all as they are if that fails. `metadata`: what the table is now."""
        table = TableStore(self._store, metadata=metadata)
        return self._tried(
            self._folding,
            version.version,
            lambda: merge_files(table, version, bounds),
            version.state,
        )

    def clean_up(self, version: int, min_versions: int) -> None:
        """Delete what a table does not need that was just committed as `version`."""
        self._tried(
            self._retention,
            version,
            lambda: retain_versions(self._store, self._table, min_versions),
            0,
        )
        if self._sweep.failures or version % _VERSIONS_PER_SWEEP == _VERSIONS_PER_SWEEP - 1:
            self._tried(self._sweep, version, self._swept, 0)

    def _swept(self) -> int:
        now = self._now()
        return len(sweep_table_orphans(self._store, self._table, _ORPHAN_GRACE_SECONDS, now))

    def _tried(self, chore: Chore, version: int, do: Callable[[], _T], otherwise: _T) -> _T:
        if not chore.is_due(version):
            return otherwise
        try:
            done = do()
        except Exception as error:  # whatever it is, the batch is not to blame
            if chore.failed(version, type(error).__name__):
                self._log(chore, version, error)
            return otherwise
        if chore.failures:
            _LOG.info("%s of %s works again", chore.name, self._store.url)
        chore.worked()
        return done

    def _log(self, chore: Chore, version: int, error: Exception) -> None:
        is_expected = isinstance(error, CheckpointStoreError | OSError)
        _LOG.warning(
            "%s of %s failed beside the commit of version %d, which is not affected: %s. It is "
            "tried again with version %d. %s%s",
            chore.name,
            self._store.url,
            version,
            _problem(error),
            chore.due,
            chore.effect,
            f" {chore.needs}" if isinstance(error, _REFUSALS) else "",
            exc_info=None if is_expected else error,
        )


def _problem(error: Exception) -> str:
    """What went wrong, without the advice to those whose batch failed."""
    if isinstance(error, StoreAccessError | StoreUnavailableError):
        return error.problem
    return f"{type(error).__name__}: {error}"


def upkeep_of(options: SinkOptions) -> TableUpkeep:
    """That of the table that the options name, as this process knows it."""
    return _upkeep_at(options.url, json.dumps(dict(options.storage_options), sort_keys=True))


@lru_cache(_MOST_TABLES)
def _upkeep_at(url: str, storage_options_json: str) -> TableUpkeep:
    store = open_object_store(url, json.loads(storage_options_json))
    return TableUpkeep(RetryingObjectStore(store, _RETRY_SECONDS))
