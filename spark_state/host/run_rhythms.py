"""Guesses which runs of queries have ended.

A host keeps the state of a query for the query's next run. If memory is short, the host gives up
the state of ended queries first. A run has ended if the driver says so, or if the host has had no
request of the run for much longer than ever before. The second sign is a guess. If the run goes on,
the guess was wrong, and the host reads the state again. Then the long pause counts as a pause of
the run, so the host waits several times longer before it guesses again. So running queries take
memory from each other only for a short time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_LEAST_SECONDS = 1.0
_PAUSES = 4


@dataclass(slots=True)
class _Rhythm:
    """Times of a run's requests, in seconds. `last_used`: end of the last request; `users`: number
    of requests in progress; `longest_pause`: longest time without a request; `has_ended`: True if a
    driver says that the run has ended."""

    last_used: float
    users: int = 0
    longest_pause: float = 0.0
    has_ended: bool = False


class RunRhythms:
    """The times of requests of all runs that a host serves. Not thread-safe: the caller must hold a
    lock. `now`: time in seconds."""

    def __init__(self) -> None:
        self._rhythms: dict[str, _Rhythm] = {}

    def note_ended(self, run_ids: Iterable[str]) -> None:
        """Note runs that have ended according to a driver."""
        for run_id in run_ids:
            if run_id in self._rhythms:
                self._rhythms[run_id].has_ended = True

    def begin_use(self, run_id: str, now: float) -> None:
        """Note the beginning of a run's request."""
        rhythm = self._rhythms.setdefault(run_id, _Rhythm(now))
        if not rhythm.users:
            rhythm.longest_pause = max(rhythm.longest_pause, now - rhythm.last_used)
        rhythm.users += 1

    def end_use(self, run_id: str, now: float) -> None:
        """Note the end of a run's request."""
        rhythm = self._rhythms[run_id]
        rhythm.users -= 1
        rhythm.last_used = now

    def has_ended(self, run_id: str, now: float) -> bool:
        """Return True if a run has probably ended. The host must have served the run."""
        rhythm = self._rhythms[run_id]
        if rhythm.users:
            return False
        patience = _LEAST_SECONDS + _PAUSES * rhythm.longest_pause
        return rhythm.has_ended or now - rhythm.last_used > patience

    def forget_others(self, run_ids: Iterable[str]) -> None:
        """Forget all runs except `run_ids` and runs with requests in progress."""
        kept = {*run_ids}
        self._rhythms = {
            run_id: rhythm
            for run_id, rhythm in self._rhythms.items()
            if run_id in kept or rhythm.users
        }
