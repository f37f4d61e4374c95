"""A snapshot that is being written to the store while epochs go on.

A chain is the list of files that give a state when applied in order. A snapshot has the same
content as the chain at the moment of the snapshot, for the key groups of the snapshot. Meanwhile
epochs append files to the chain. When the snapshot is durable, the snapshot replaces the old files
at the beginning of the chain. If the last epoch in the snapshot has been undone, the chain no
longer begins with the old files. Then the snapshot replaces nothing, and is an orphan.

Until a barrier names the snapshot, its files are protected from the orphan sweep, see
unnamed_files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Protocol

from checkpoint_store.errors import StoreUnavailableError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.operators.epoch_files import AttemptFiles
from spark_state.checkpointing.kept_state import Counts, RowsOfFiles, rows_of_snapshot
from spark_state.checkpointing.restore_plan import Handles, with_snapshot
from spark_state.keyed_state.full_snapshot import KeyedStateSnapshot
from spark_state.subtasks.epoch_request import CheckpointSettings
from spark_state.subtasks.unnamed_files import UnnamedFiles

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Written:
    """New files with the same content as a chain in `key_groups`. `rows`: for each file, by name,
    the number of rows in each key group of the subtask."""

    key_groups: KeyGroupRange
    files: Handles
    rows: RowsOfFiles


Begin = Callable[[Callable[[], list[Written]]], Future[list[Written]]]


class Writing(Protocol):
    """A job that writes files, run by another thread."""

    def write(self) -> list[Written]:
        """Write the files, and release the data. Call once. The files are durable on return."""

    def release(self) -> None:
        """Give up data that is not written yet. Safe to call again."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The files of a `chain` from index `first` (included) to `end` (excluded), which other files
    replace."""

    chain: Handles
    first: int
    end: int

    @classmethod
    def all(cls, chain: Handles) -> Replaced:
        """Return a Replaced with all files of a chain."""
        return cls(chain, 0, len(chain))

    def by(self, written: Iterable[tuple[KeyGroupRange, Handles]]) -> Handles:
        """Return the chain with new files in place of the replaced files. `written`: pairs of key
        groups and the new files with these key groups."""
        shortened = self.chain[self.first : self.end]
        for key_groups, files in written:
            shortened = with_snapshot(shortened, files, key_groups)
        return (*self.chain[: self.first], *shortened, *self.chain[self.end :])


class PendingSnapshot:
    """A snapshot or a merge of changelogs, which `writing` writes, to replace the files `replaced`.

    `unnamed`: protects the files until a barrier names them; `begin(job)` runs a job in a
    maintenance thread; `is_awaited`: True if the next barrier waits for the files.
    """

    def __init__(
        self,
        writing: Writing,
        replaced: Replaced,
        unnamed: UnnamedFiles,
        begin: Begin,
        is_awaited: bool,
    ) -> None:
        self.is_awaited = is_awaited
        self.unnamed = unnamed
        self._writing = writing
        self._replaced = replaced
        self._future = begin(writing.write)

    def wait(self, check: Callable[[], None]) -> None:
        """Wait until writing has succeeded or failed. Calls `check` again and again; `check` may
        raise to end the wait."""
        while wait([self._future], timeout=_CHECK_SECONDS).not_done:
            check()

    def done(self) -> bool:
        """Return True if writing has succeeded or failed."""
        return self._future.done()

    def has_failed(self) -> bool:
        """Return True if writing has failed, and log the error. No state is lost: the changelogs
        stay, and a later snapshot may replace them."""
        error = self._future.exception()
        if error is not None and not isinstance(error, StoreUnavailableError):  # logged already
            _log.error("%s failed; changelogs are kept instead", self._writing, exc_info=error)
        return error is not None

    def written(self) -> list[Written]:
        """Return the files. Raises the error of a failed writing."""
        return self._future.result()

    def is_lost(self, settings: CheckpointSettings) -> bool:
        """Return True if the orphan sweep may have deleted the files, and log the reason.
        `settings`: the settings of the attempt whose barrier is to name the files."""
        reason = self.unnamed.why_lost(settings)
        if reason is not None:
            _log.warning("%s took too long; changelogs are kept instead: %s", self._writing, reason)
        return reason is not None

    def is_merge(self) -> bool:
        """Return True for a merge, which replaces a part of the chain; False for a snapshot."""
        return self._replaced != Replaced.all(self._replaced.chain)

    def shorten(self, handles: Handles) -> Handles:
        """Return `handles` with the new files in place of the replaced files. Return `handles`
        unchanged if `handles` do not begin with the chain of the replaced files."""
        chain = self._replaced.chain
        if handles[: len(chain)] != chain:
            return handles
        written = [(part.key_groups, part.files) for part in self.written()]
        return (*self._replaced.by(written), *handles[len(chain) :])

    def abandon(self) -> None:
        """Release the data if writing has not begun; otherwise the writer releases the data at its
        end."""
        if self._future.cancel():
            self._writing.release()


@dataclass(frozen=True, slots=True)
class SnapshotWriting:
    """A job (see Writing) that writes snapshots.

    `ranges`: snapshots of ranges of key groups, all taken at one moment; `files`: writer of the
    files; `entries`: number of entries in each of the subtask's `key_groups` at that moment.
    """

    ranges: Sequence[KeyedStateSnapshot]
    files: AttemptFiles
    key_groups: KeyGroupRange
    entries: Counts

    def __str__(self) -> str:
        return "writing a snapshot"

    def write(self) -> list[Written]:
        try:
            return [self._write(of_range) for of_range in self.ranges]
        finally:
            self.release()

    def _write(self, of_range: KeyedStateSnapshot) -> Written:
        files = of_range.write(self.files)
        rows = {file.name: rows_of_snapshot(file, self.key_groups, self.entries) for file in files}
        return Written(of_range.key_groups, files, rows)

    def release(self) -> None:
        for of_range in self.ranges:
            of_range.release()
