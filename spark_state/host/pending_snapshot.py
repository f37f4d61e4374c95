"""A snapshot on its way to the store while epochs go on.

It stands for the files that the state was built from when it was taken, in its key groups. Once it
is durable it may replace them there, but only where a chain of handles still begins with them: if
the epoch it was taken after has been undone, the snapshot is an orphan. Until a barrier names it,
its files are kept from the orphan sweep, see unnamed_files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Protocol

from checkpoint_store.errors import StoreUnavailableError
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.checkpointing.kept_state import Counts, RowsOfFiles, rows_of_snapshot
from spark_state.checkpointing.restore_plan import Handles, with_snapshot
from spark_state.host.epoch_request import CheckpointSettings
from spark_state.host.unnamed_files import UnnamedFiles
from spark_state.keyed_state.keyed_state_snapshot import KeyedStateSnapshot, SnapshotFiles

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Written:
    """Files that hold what a chain has of `key_groups`. `rows`: how many each of them has of each
    key group of the subtask, by its name."""

    key_groups: KeyGroupRange
    files: Handles
    rows: RowsOfFiles


Begin = Callable[[Callable[[], list[Written]]], Future[list[Written]]]


class Writing(Protocol):
    """What writes itself, in another thread."""

    def write(self) -> list[Written]:
        """Write it, once, durable on return, and release it."""

    def release(self) -> None:
        """Give up what is not written yet. Safe to call again."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The files of a `chain` from number `first` to before `end`, for which others stand."""

    chain: Handles
    first: int
    end: int

    @classmethod
    def all(cls, chain: Handles) -> Replaced:
        """All files of a chain."""
        return cls(chain, 0, len(chain))

    def by(self, written: Iterable[tuple[KeyGroupRange, Handles]]) -> Handles:
        """The chain with these files in their place, each for some key groups."""
        shortened = self.chain[self.first : self.end]
        for key_groups, files in written:
            shortened = with_snapshot(shortened, files, key_groups)
        return (*self.chain[: self.first], *shortened, *self.chain[self.end :])


class PendingSnapshot:
    """A snapshot of the state that the files of a chain hold, or a merge of changelogs, being
    written by `writing`. It is to stand for what is `replaced`.

    `unnamed`: its files; `begin(job)` runs a job in a thread of maintenance; `is_awaited`: whether
    the next barrier waits for it.
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
        """Wait until writing has ended, well or not; `check` is called meanwhile and may raise."""
        while wait([self._future], timeout=_CHECK_SECONDS).not_done:
            check()

    def done(self) -> bool:
        """Whether writing has ended, well or not."""
        return self._future.done()

    def has_failed(self) -> bool:
        """Whether writing has ended with an error, which is logged: the changelogs still hold
        everything, and a later snapshot tries again."""
        error = self._future.exception()
        if error is not None and not isinstance(error, StoreUnavailableError):  # the log has that
            _log.error("%s failed; changelogs are kept instead", self._writing, exc_info=error)
        return error is not None

    def written(self) -> list[Written]:
        """What was written."""
        return self._future.result()

    def is_lost(self, settings: CheckpointSettings) -> bool:
        """Whether the orphan sweep may have taken it, which is logged. `settings`: of the attempt
        whose barrier is to name it."""
        reason = self.unnamed.why_lost(settings)
        if reason is not None:
            _log.warning("%s took too long; changelogs are kept instead: %s", self._writing, reason)
        return reason is not None

    def is_merge(self) -> bool:
        """Whether it is a part of the chain that is replaced, and not the state."""
        return self._replaced != Replaced.all(self._replaced.chain)

    def shorten(self, handles: Handles) -> Handles:
        """`handles` with what was written in place of what it replaces, where it may be."""
        chain = self._replaced.chain
        if handles[: len(chain)] != chain:
            return handles
        written = [(part.key_groups, part.files) for part in self.written()]
        return (*self._replaced.by(written), *handles[len(chain) :])

    def abandon(self) -> None:
        """Give the entries up if writing has not begun; otherwise the writer does."""
        if self._future.cancel():
            self._writing.release()


@dataclass(frozen=True, slots=True)
class SnapshotWriting:
    """Snapshots of `ranges`, taken at one moment, that write themselves to `files`. `entries`: how
    many there were of each of the subtask's `key_groups`."""

    ranges: Sequence[KeyedStateSnapshot]
    files: SnapshotFiles
    key_groups: KeyGroupRange
    entries: Counts

    def __str__(self) -> str:
        return "writing a snapshot"

    def write(self) -> list[Written]:
        """See Writing."""
        try:
            return [self._write(of_range) for of_range in self.ranges]
        finally:
            self.release()

    def _write(self, of_range: KeyedStateSnapshot) -> Written:
        files = of_range.write(self.files)
        rows = {file.name: rows_of_snapshot(file, self.key_groups, self.entries) for file in files}
        return Written(of_range.key_groups, files, rows)

    def release(self) -> None:
        """See Writing."""
        for of_range in self.ranges:
            of_range.release()
