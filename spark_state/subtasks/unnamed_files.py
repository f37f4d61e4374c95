"""Protects files of an attempt from the orphan sweep until a barrier names the files.

Any host may run the sweep. The sweep counts an unnamed file as no older than the newest object in
the same directory (I8). So the host puts a sign of life, a small object, beside the files from time
to time. A maintenance thread puts the signs, and only for files that wait long: no epoch waits for
a sign, and most epochs cost no request for a sign. After half of the grace period without a sign, a
barrier must not name the files any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from checkpoint_store.errors import CheckpointStoreError
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_request import CheckpointSettings

_log = logging.getLogger(__name__)

_SIGNS_IN_A_GRACE = 8


class UnnamedFiles:
    """Files that an attempt writes from now on. `clock` gives seconds."""

    def __init__(self, attempt: EpochAttempt, clock: Callable[[], float]) -> None:
        self._url = attempt.request.store_url
        self._subtask = attempt.by.subtask
        self._grace_seconds = attempt.settings.orphan_grace_seconds
        self._signs = attempt.files.signs_of_life()
        self._clock = clock
        self._begun = self._shown = self._tried = clock()
        self._putting: Future[None] | None = None

    def show_alive(self, begin: Callable[[Callable[[], None]], Future[None]]) -> None:
        """Put a sign of life if due. `begin(job)` runs a job in a maintenance thread."""
        if self._putting is not None and not self._putting.done():
            return
        if self._clock() - self._tried >= self._grace_seconds / _SIGNS_IN_A_GRACE:
            self._putting = begin(self._put)

    def _put(self) -> None:
        now = self._tried = self._clock()
        try:
            self._signs.put()
        except CheckpointStoreError:
            _log.warning(
                "subtask %d cannot show %s that it still writes files that no barrier names yet",
                self._subtask,
                self._url,
                exc_info=True,
            )
        else:
            self._shown = now

    def why_lost(self, settings: CheckpointSettings) -> str | None:
        """Return the reason why a barrier must not name the files: the orphan sweep may have
        deleted the files. None if the files are safe. `settings`: settings of the attempt whose
        barrier is to name the files."""
        now, grace = self._clock(), settings.orphan_grace_seconds
        took = f"subtask {self._subtask} of {self._url} needed {now - self._begun:.0f} s"
        if grace < self._grace_seconds:
            return (
                f"{took}; meanwhile spark.cowstate.orphanGraceSeconds was lowered from "
                f"{self._grace_seconds} to {grace}"
            )
        limit = grace / 2
        if now - self._shown <= limit:
            return None
        return (
            f"{took}, and its last sign of life is {now - self._shown:.0f} s old; the limit is "
            f"{limit:.0f} s, half of spark.cowstate.orphanGraceSeconds"
        )
