"""Work in the background that may fail without harm: when it is tried, and what the log says.

    number      0   1   2   4   8   16   32   64   96  ...
    failures    1   2   3   4   5    6    7    8    9        of a chore that fails each time

A chore that works is tried at every number; one that failed n times, at multiples of 2^(n-1), and
at multiples of 32 in the end. So failures alone say when it is due: a process that goes on with
another one's count needs nothing else. What a number counts (versions of a table, clean-ups of a
store) is the caller's.

A failure is a warning when it is the first of its kind since the chore worked. A process that goes
on with the count of another one takes its own first kind of failure for the one that the other has
logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from checkpoint_store.errors import (
    CheckpointStoreError,
    StoreAccessError,
    StoreUnavailableError,
)

_LOG = logging.getLogger(__name__)
_MOST_BETWEEN = 32
# Other errors say themselves what to do, or are no fault of the store.
_REFUSALS = (StoreAccessError, OSError, MemoryError)
_T = TypeVar("_T")


@dataclass
class Chore:
    """One kind of work, and how often it failed since it last worked. `effect`: what follows from
    a failure; `needs`: what it asks of its store."""

    name: str
    effect: str
    needs: str
    failures: int = 0
    _is_told: bool = False
    _kinds: set[str] = field(default_factory=set)

    def go_on_with(self, failures: int) -> None:
        """Take over the failures of another process, which has logged the first of them."""
        self.failures = failures
        self._is_told = failures > 0

    def is_due(self, number: int) -> bool:
        """Whether it is time to try it."""
        return not self.failures or number % min(1 << (self.failures - 1), _MOST_BETWEEN) == 0

    def worked(self) -> None:
        """From now on it is tried every time, and a failure is news."""
        self.failures = 0
        self._is_told = False
        self._kinds.clear()

    def failed(self, kind: str) -> bool:
        """Count a failure; returns whether it is news."""
        self.failures += 1
        is_news = kind not in self._kinds and not self._is_told
        self._is_told = False
        self._kinds.add(kind)
        return is_news


def try_chore(chore: Chore, number: int, url: str, do: Callable[[], _T], otherwise: _T) -> _T:
    """What `do` gives, or `otherwise` if it is not due or fails. `url`: where it works."""
    if not chore.is_due(number):
        return otherwise
    try:
        done = do()
    except Exception as error:  # no error of a chore may fail the work of its caller
        _log_failure(chore, url, error, is_news=chore.failed(type(error).__name__))
        return otherwise
    if chore.failures:
        _LOG.info("%s of %s works again, after %d failures", chore.name, url, chore.failures)
    chore.worked()
    return done


def _log_failure(chore: Chore, url: str, error: Exception, *, is_news: bool) -> None:
    is_expected = isinstance(error, CheckpointStoreError | OSError)
    _LOG.log(
        logging.WARNING if is_news else logging.INFO,
        "%s of %s failed, which harms no batch: %s. It is tried again later. %s%s",
        chore.name,
        url,
        _problem(error),
        chore.effect,
        f" {chore.needs}" if isinstance(error, _REFUSALS) else "",
        exc_info=None if is_expected else error,
    )


def _problem(error: Exception) -> str:
    """What went wrong, without the advice that is meant for failed batches."""
    if isinstance(error, StoreAccessError | StoreUnavailableError):
        return error.problem
    return f"{type(error).__name__}: {error}"
