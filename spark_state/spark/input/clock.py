"""The clock of an operator: decides when Spark runs a batch without rows.

Spark asks a source for its newest offset before every batch, and some forty times a second while
there is nothing to do. A new offset is a tick: Spark runs a batch, and each subtask gets a control
row.

    offset   {"tick": 7, "query": "<id of the query>"}

After each batch the clock reads the times of all subtasks from the operator's store, once. Until
the next batch the clock only compares these times with the present time.

The store's path contains the query's id, and the clock's process does not know the id. So a task
that reads control rows writes the id into an object whose name the clock chose. The clock reads the
object after the batch. Then the clock ticks once more: the new offset has the id. After a restart
the clock finds the id in its last offset.

If no task has written the object when the batch is over, the clock ticks a second time. If the
object is still missing after the second batch, the clock stops ticking: otherwise the clock of a
query that never reads the control rows would tick for ever. As long as the object is missing, the
clock ticks once more after each batch without control rows.

    batch begins -> Spark asks again: the batch is over -> read the query's id and the newest times
                 -> Spark asks again, and again         -> compare

A store that cannot be read does not stop the query: the clock tries again later, and writes one
warning to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_store.epochs.completed_checkpoint import SubtaskTime
from checkpoint_store.errors import CheckpointStoreError
from spark_state.checkpointing.due_epochs import is_due
from spark_state.checkpointing.watermarks import Policy

_SECONDS_BETWEEN_TRIES = 5.0
_TIMES_TO_ASK = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The number of ticks, and the query's id: None as long as the clock does not know the id."""

    tick: int
    query: str | None


class ClockStore(Protocol):
    """The stores that a clock reads. Both methods raise CheckpointStoreError or OSError."""

    def query_id(self) -> str | None:
        """The id of the clock's query; None until a task has written the id."""

    def newest_times(self, query_id: str) -> Sequence[SubtaskTime]:
        """The times in the barriers of the query's newest epoch."""


class Clock:
    """Decides about ticks. `policy`: see is_due; `seconds`: returns the seconds since 1970."""

    def __init__(
        self,
        store: ClockStore,
        policy: Policy | None,
        seconds: Callable[[], float],
    ) -> None:
        self._store = store
        self._policy = policy
        self._seconds = seconds
        self._query_id: str | None = None
        self._times: Sequence[SubtaskTime] = ()
        self._may_be_outdated = True
        self._has_ticked = False
        self._has_asked = False
        self._unanswered = 0
        self._next_try = 0.0
        self._has_told = False
        self._stopped_at: float | None = None

    def stop_at_now(self) -> None:
        """Let the clock's time stand still from now on: the clock no longer ticks for timers of a
        later time. For a query that ends when all input is read."""
        self._stopped_at = self._seconds()

    def batch_begins(self, *, with_control_rows: bool) -> None:
        """Tell the clock that a batch begins: when Spark next asks for an offset, the store will
        have a new epoch. `with_control_rows`: True if the batch has control rows."""
        self._may_be_outdated = True
        self._has_ticked = with_control_rows

    def asks_for_query(self) -> bool:
        """Return True if the task that reads this batch's control rows must write the query's
        id."""
        self._has_asked = self._query_id is None
        return self._has_asked

    def offset_after(self, last: ClockOffset) -> ClockOffset:
        """The newest offset: `last`, or the offset of a new tick."""
        self._query_id = last.query or self._query_id
        if self._may_be_outdated and not self._look():
            return last
        if self._query_id is None:
            may_ask = self._unanswered < _TIMES_TO_ASK
            return ClockOffset(last.tick + 1, None) if may_ask else last
        is_logged = last.query is not None
        now = self._seconds() if self._stopped_at is None else self._stopped_at
        ticks = is_due(self._times, int(now * 1000), self._policy, after_tick=self._has_ticked)
        return ClockOffset(last.tick + 1, self._query_id) if ticks or not is_logged else last

    def _look(self) -> bool:
        """Read the results of the last batch. Return False if the store cannot be read now."""
        if self._seconds() < self._next_try:
            return False
        try:
            self._query_id = self._query_id or self._store.query_id()
            if self._query_id is None:
                self._count_as_unanswered()
            else:
                self._times = self._store.newest_times(self._query_id)
        except (CheckpointStoreError, OSError) as error:
            self._next_try = self._seconds() + _SECONDS_BETWEEN_TRIES
            if not self._has_told:
                _log.warning(
                    "timers fire in batches with rows only, until the driver can read the store of "
                    "their operator; it tries again every %d s: %s",
                    _SECONDS_BETWEEN_TRIES,
                    error,
                )
            self._has_told = True
            return False
        self._may_be_outdated = self._has_told = False
        return True

    def _count_as_unanswered(self) -> None:
        """Count a finished batch in which no task has written the query's id."""
        if self._has_asked:
            self._unanswered += 1
        else:
            self._unanswered = min(self._unanswered, _TIMES_TO_ASK - 1)
        self._has_asked = False
