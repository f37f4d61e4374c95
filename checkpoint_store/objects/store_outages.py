"""Outages of object stores in this process, with a few lines in the log per outage.

An outage begins when a call fails again after a retry. An outage ends when a call is answered and
no other call is failing. The log has one line at the beginning, and one line when the store answers
again, for any number of calls and threads. A call that is given up raises an error in its caller,
and is not logged here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from checkpoint_store.errors import StoreUnavailableError

RETRY_SECONDS = 120
_log = logging.getLogger(__name__)


@dataclass
class _Outage:
    """An outage of one store. `since`: time of the first noticed failure; `failing`: number of
    calls that are tried again now."""

    since: float
    failing: int = 0


class StoreOutages:
    """The outages of this process, by the URL of the store. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outages: dict[str, _Outage] = {}

    def fails(self, url: str, since: float, retry_seconds: float, problem: str) -> None:
        """Record the second failure of a call that first failed at `since`. Afterwards the caller
        reports the end of the call with `ends`."""
        with self._lock:
            outage = self._outages.get(url)
            if outage is None:
                outage = self._outages[url] = _Outage(since)
                waits = f"calls to it are tried again for {retry_seconds:.0f} s"
                _log.warning("%s does not answer (%s); %s", url, problem, waits)
            outage.failing += 1

    def ends(self, url: str, now: float, *, failed: bool, is_answered: bool) -> None:
        """Record the end of a call. `failed`: the caller has called `fails` for this call;
        `is_answered`: the store answered, so the call was neither given up nor interrupted. Costs
        one look-up if there is no outage."""
        if url not in self._outages:
            return
        with self._lock:
            outage = self._outages.get(url)
            if outage is None:
                return
            outage.failing -= failed
            if is_answered and not outage.failing:
                del self._outages[url]
                _log.warning("%s answers again, after %.0f s", url, now - outage.since)


_OUTAGES = StoreOutages()


class StoreCall:
    """One call to a store, tried until `retry_seconds` after the first failure. A context
    manager."""

    def __init__(self, url: str, retry_seconds: float, clock: Callable[[], float]) -> None:
        self._url = url
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._failed_at: float | None = None
        self._has_failed_again = False

    def fails(self, problem: str) -> None:
        """Record a failed attempt."""
        if self._failed_at is None:
            self._failed_at = self._clock()
        elif not self._has_failed_again:
            self._has_failed_again = True
            _OUTAGES.fails(self._url, self._failed_at, self._retry_seconds, problem)

    def seconds_failing(self) -> float:
        """Return the seconds since the call's first attempt failed."""
        return 0.0 if self._failed_at is None else self._clock() - self._failed_at

    def seconds_left(self) -> float:
        """Return for how many seconds the call may still be tried; 0: give up."""
        return max(self._retry_seconds - self.seconds_failing(), 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A missing object or a taken name is also an answer.
        is_given_up = isinstance(error, StoreUnavailableError)
        is_interrupted = error is not None and not isinstance(error, Exception)
        is_answered = not (is_given_up or is_interrupted)
        failed = self._has_failed_again
        _OUTAGES.ends(self._url, self._clock(), failed=failed, is_answered=is_answered)
