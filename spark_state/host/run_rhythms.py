"""Which runs of queries have ended, as far as a host can tell.

A host keeps the state of a query for the next run of it. When memory is short, state of ended
queries goes first. A run has ended if its driver says so, or if it has used none of its stores for
much longer than ever before: a host hears of batches only, and batches have a rhythm. The state of
a run that goes on after all is read again. The pause is part of the rhythm then, so that the
patience grows several times with each mistake, and queries that all go on do not take turns for
long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_LEAST_SECONDS = 1.0
_PAUSES = 4


@dataclass(slots=True)
class _Rhythm:
    """How many of a run's requests are served, when the last one was, and the longest pause before,
    in seconds. `has_ended`: as its driver says."""

    last_used: float
    users: int = 0
    longest_pause: float = 0.0
    has_ended: bool = False


class RunRhythms:
    """The runs that a host has served. Used under its owner's lock."""

    def __init__(self) -> None:
        self._rhythms: dict[str, _Rhythm] = {}

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._rhythms)

    def note_ended(self, run_ids: Iterable[str]) -> None:
        """These runs have ended, says a driver."""
        for run_id in run_ids:
            if run_id in self._rhythms:
                self._rhythms[run_id].has_ended = True

    def begin_use(self, run_id: str, now: float) -> None:
        """A request of a run is served."""
        rhythm = self._rhythms.setdefault(run_id, _Rhythm(now))
        if not rhythm.users:
            rhythm.longest_pause = max(rhythm.longest_pause, now - rhythm.last_used)
        rhythm.users += 1

    def end_use(self, run_id: str, now: float) -> None:
        """It was served."""
        rhythm = self._rhythms[run_id]
        rhythm.users -= 1
        rhythm.last_used = now

    def has_ended(self, run_id: str, now: float) -> bool:
        """Whether a run that was served has ended, as far as one can tell."""
        rhythm = self._rhythms[run_id]
        if rhythm.users:
            return False
        patience = _LEAST_SECONDS + _PAUSES * rhythm.longest_pause
        return rhythm.has_ended or now - rhythm.last_used > patience

    def forget_others(self, run_ids: Iterable[str]) -> None:
        """Forget all runs but these, and those that are served."""
        kept = {*run_ids}
        self._rhythms = {
            run_id: rhythm
            for run_id, rhythm in self._rhythms.items()
            if run_id in kept or rhythm.users
        }
