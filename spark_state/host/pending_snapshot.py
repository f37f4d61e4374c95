"""A snapshot on its way to the store while epochs go on.

It stands for the files that the state was built from when it was taken, in its key groups. Once it
is durable it may replace them there, but only where a chain of handles still begins with them: if
the epoch it was taken after has been undone, the snapshot is an orphan. So is one that waited long:
nothing names it yet, and the orphan sweep may take it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from checkpoint_store.errors import StoreUnavailableError
from spark_state.checkpointing.restore_plan import Handles, with_snapshot
from spark_state.keyed_state.keyed_state_snapshot import KeyedStateSnapshot, SnapshotFiles

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2
Begin = Callable[[Callable[[], Handles]], Future[Handles]]


class PendingSnapshot:
    """A snapshot being written to `files`, of the state that `replaces` hold.

    `begin(job)` runs a job in a thread of maintenance; `useful_seconds`: how long after this moment
    it may still be named; `is_awaited`: whether the next barrier waits for it.
    """

    def __init__(
        self,
        snapshot: KeyedStateSnapshot,
        replaces: Handles,
        files: SnapshotFiles,
        begin: Begin,
        useful_seconds: float,
        is_awaited: bool,
    ) -> None:
        self.is_awaited = is_awaited
        self._useful_until = time.monotonic() + useful_seconds
        self._snapshot = snapshot
        self._replaces = replaces
        self._future = begin(lambda: snapshot.write(files))

    def wait(self, check: Callable[[], None]) -> None:
        """Wait until writing has ended, well or not; `check` is called meanwhile and may raise."""
        while wait([self._future], timeout=_CHECK_SECONDS).not_done:
            check()

    def done(self) -> bool:
        """Whether writing has ended, well or not."""
        return self._future.done()

    def shorten(self, handles: Handles) -> Handles:
        """`handles` with the written snapshot in place of what it replaces, where it may be.

        A failure to write is logged: the changelogs still hold everything, and the next snapshot
        that is due tries again.
        """
        assert self.done()
        error = self._future.exception()
        if isinstance(error, StoreUnavailableError):
            return handles  # the log has it
        if error is not None:
            _log.error("writing a snapshot failed; changelogs are kept instead", exc_info=error)
            return handles
        length = len(self._replaces)
        if handles[:length] != self._replaces or time.monotonic() > self._useful_until:
            return handles
        written, key_groups = self._future.result(), self._snapshot.key_groups
        return (*with_snapshot(self._replaces, written, key_groups), *handles[length:])

    def abandon(self) -> None:
        """Give the entries up if writing has not begun; otherwise the writer does."""
        if self._future.cancel():
            self._snapshot.release()
