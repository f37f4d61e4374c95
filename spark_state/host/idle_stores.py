"""Which stores of a host have queries that have ended, as far as the host can tell.

A host keeps the state of a query for the next run of it. When memory is short, state of ended
queries goes first. A query has ended if its driver says so, or if nobody has used its store for
much longer than ever before in its run: a host hears of batches only, and batches have a rhythm. A
store whose query goes on after all is read again. The pause is part of the rhythm then, so that the
patience grows several times with each mistake, and queries that all go on do not take turns for
long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from checkpoint_store.objects.remembered import Remembered

_LEAST_SECONDS = 1.0
_PAUSES = 4
# A rhythm is small, but a host lives as long as its executor.
_REMEMBERED = 1_024


@dataclass(slots=True)
class _Rhythm:
    """When a run used a store last, and its longest pause before, in seconds."""

    run_id: str
    last_used: float
    longest_pause: float = 0.0


class IdleStores:
    """How long stores have not been used, and whether that is long. Used under its owner's lock."""

    def __init__(self) -> None:
        self._rhythms: Remembered[str, _Rhythm] = Remembered(_REMEMBERED)
        self._ended_runs: Remembered[str, bool] = Remembered(_REMEMBERED)

    def note_ended(self, run_ids: Iterable[str]) -> None:
        """These runs have ended, says a driver."""
        for run_id in run_ids:
            self._ended_runs.put(run_id, True)

    def begin_use(self, url: str, run_id: str, now: float) -> None:
        """A run begins to use a store that nobody uses."""
        rhythm = self._rhythms.get(url)
        if rhythm is None or rhythm.run_id != run_id:
            self._rhythms.put(url, _Rhythm(run_id, now))
        else:
            rhythm.longest_pause = max(rhythm.longest_pause, now - rhythm.last_used)

    def end_use(self, url: str, now: float) -> None:
        """Nobody uses a store any more."""
        rhythm = self._rhythms.get(url)
        if rhythm is not None:
            rhythm.last_used = now

    def idle_seconds(self, url: str, now: float) -> float:
        """How long nobody has used a store that is not in use; infinite if its rhythm is not
        remembered, since many others were used after it."""
        rhythm = self._rhythms.get(url)
        return math.inf if rhythm is None else now - rhythm.last_used

    def has_ended(self, url: str, now: float) -> bool:
        """Whether the query of a store that is not in use has ended, as far as one can tell."""
        rhythm = self._rhythms.get(url)
        if rhythm is None:
            return True
        patience = _LEAST_SECONDS + _PAUSES * rhythm.longest_pause
        return bool(self._ended_runs.get(rhythm.run_id)) or now - rhythm.last_used > patience
