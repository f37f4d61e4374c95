"""A snapshot on its way to the store while epochs go on.

It stands for the files that the state was built from when it was taken, in its key groups. Once it
is durable it may replace them there, but only where a chain of handles still begins with them: if
the epoch it was taken after has been undone, the snapshot is an orphan. So is one that waited long:
nothing names it yet, and the orphan sweep may take it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from checkpoint_store.errors import StoreUnavailableError
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.checkpointing.restore_plan import Handles, with_snapshot
from spark_state.keyed_state.keyed_state_snapshot import KeyedStateSnapshot, SnapshotFiles

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2
Written = list[tuple[KeyGroupRange, Handles]]
Begin = Callable[[Callable[[], Written]], Future[Written]]


@dataclass(frozen=True, slots=True)
class Replaced:
    """The files of a `chain` that others are to stand for; the first `number_kept` stay."""

    chain: Handles
    number_kept: int = 0

    def by(self, written: Written) -> Handles:
        """The chain with these files in their place."""
        shortened = self.chain[self.number_kept :]
        for key_groups, files in written:
            shortened = with_snapshot(shortened, files, key_groups)
        return (*self.chain[: self.number_kept], *shortened)


class PendingSnapshot:
    """A snapshot being written to `files`, of the state that `replaced` hold: `ranges` were taken
    at one moment, and have no key group in common.

    `begin(job)` runs a job in a thread of maintenance; `useful_seconds`: how long after this moment
    it may still be named; `is_awaited`: whether the next barrier waits for it.
    """

    def __init__(
        self,
        ranges: Sequence[KeyedStateSnapshot],
        replaced: Replaced,
        files: SnapshotFiles,
        begin: Begin,
        useful_seconds: float,
        is_awaited: bool,
    ) -> None:
        self.is_awaited = is_awaited
        self._useful_until = time.monotonic() + useful_seconds
        self._ranges = ranges
        self._replaced = replaced
        self._future = begin(lambda: _write(ranges, files))

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
            _log.error("writing a snapshot failed; changelogs are kept instead", exc_info=error)
        return error is not None

    def files(self) -> Handles:
        """What was written."""
        return tuple(handle for _, written in self._future.result() for handle in written)

    def shorten(self, handles: Handles) -> Handles:
        """`handles` with the written snapshot in place of what it replaces, where it may be."""
        chain = self._replaced.chain
        if handles[: len(chain)] != chain or time.monotonic() > self._useful_until:
            return handles
        return (*self._replaced.by(self._future.result()), *handles[len(chain) :])

    def abandon(self) -> None:
        """Give the entries up if writing has not begun; otherwise the writer does."""
        if self._future.cancel():
            _release(self._ranges)


def _write(ranges: Sequence[KeyedStateSnapshot], files: SnapshotFiles) -> Written:
    try:
        return [(of_range.key_groups, of_range.write(files)) for of_range in ranges]
    finally:
        _release(ranges)


def _release(ranges: Sequence[KeyedStateSnapshot]) -> None:
    for of_range in ranges:
        of_range.release()
