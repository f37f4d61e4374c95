"""Keeps a table small while queries write: folds files, deletes old versions and orphans.

Upkeep has three chores, which run before a commit:

    folding      folds the newest files of the state into fewer files, if due
    retention    deletes expired versions
    sweep        deletes orphans; only now and then

A chore that fails does not fail the batch, because the query would fail again after every restart.
A failed chore leaves the table unchanged, and is tried again some commits later. The first failure
is logged as a warning. See checkpoint_store.objects.chore.

Each chore counts its failures since the chore last worked. The new version of the table stores the
greatest count of the three chores (`failed_upkeep`). Spark ends the process of a commit after a
minute without work. The next process reads `failed_upkeep` from the newest version, and takes this
number as the count of every chore, because the version does not tell which chore failed.

`cowstate compact` is not upkeep: the command fails if the files cannot be folded, because a user
asked for the work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from checkpoint_store.objects.chore import Chore, try_chore
from checkpoint_store.objects.deletion import deletion_chores, sweep_orphans, time_of_store
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.tables.table_compaction import MergeBounds, merge_files
from checkpoint_store.tables.table_orphans import TableOrphans
from checkpoint_store.tables.table_retention import TableRetention
from checkpoint_store.tables.table_store import TableStore
from checkpoint_store.tables.table_version import TableMetadata, TableVersion
from datasources.options.table_options import SinkOptions

_VERSIONS_BETWEEN_SWEEPS = 100
_MOST_TABLES = 64
# One call of a chore is tried again for this long. A failed chore is due again at a later commit.
_RETRY_SECONDS = 5.0
_UNFOLDED = "Until then its files stay as they are, and reads get slower."
_FOLDING_NEEDS = (
    "The writer must be able to read the table's files, and have room for another one; option "
    "autoCompactBytes set to 0 leaves folding to the command cowstate compact"
)
_T = TypeVar("_T")


class TableUpkeep:
    """Upkeep of the table in `store`, with the failures of its chores."""

    def __init__(self, store: ObjectStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._is_begun = False
        self._folding = Chore("folding files", _UNFOLDED, _FOLDING_NEEDS)
        self._retention, self._sweep = deletion_chores("versions", "The writer", "table")

    @property
    def failures(self) -> int:
        """Number of failures since the last success, of the chore with the most failures."""
        return max(chore.failures for chore in self._chores())

    def _chores(self) -> tuple[Chore, Chore, Chore]:
        return self._folding, self._retention, self._sweep

    def done_before(
        self,
        metadata: TableMetadata,
        version: TableVersion,
        bounds: MergeBounds,
        options: SinkOptions,
    ) -> TableVersion:
        """Do the upkeep before the commit of `version`. Return the version to commit: with fewer
        files if files were folded, and with the new number of failed upkeeps.

        `metadata`: the table's metadata. `version`: the new version, whose `failed_upkeep` is still
        the number of the preceding version. `bounds`: the limits of a fold.
        """
        if not self._is_begun:
            for chore in self._chores():
                chore.failures = version.failed_upkeep
            self._is_begun = True
        table = TableStore(self._store, metadata=metadata)
        state = self._tried(
            self._folding, version, lambda: merge_files(table, version, bounds), version.state
        )
        folded = replace(version, state=state)
        retention = TableRetention(self._store, table)
        self._tried(
            self._retention, version, lambda: retention.retain(options.min_versions_to_retain), 0
        )
        if (
            self._sweep.failures
            or version.version % _VERSIONS_BETWEEN_SWEEPS == 0 < version.version
        ):
            self._tried(
                self._sweep,
                version,
                lambda: self._swept(table, folded, options.orphan_grace_seconds),
                0,
            )
        return replace(folded, failed_upkeep=self.failures)

    def _swept(self, table: TableStore, coming: TableVersion, grace_seconds: int) -> int:
        orphans = TableOrphans(self._store, table, coming)
        now = time_of_store(self._store, self._now())
        return len(sweep_orphans(self._store, orphans, grace_seconds, now))

    def _tried(
        self, chore: Chore, version: TableVersion, do: Callable[[], _T], otherwise: _T
    ) -> _T:
        return try_chore(chore, version.version, self._store.url, do, otherwise)


def upkeep_of(options: SinkOptions) -> TableUpkeep:
    """The upkeep of the table that the options name. The process keeps an upkeep for each table."""
    return _upkeep_at(options.url, json.dumps(dict(options.storage_options), sort_keys=True))


@lru_cache(_MOST_TABLES)
def _upkeep_at(url: str, storage_options_json: str) -> TableUpkeep:
    store = open_object_store(url, json.loads(storage_options_json))
    return TableUpkeep(RetryingObjectStore(store, _RETRY_SECONDS))
