"""Background work that may fail without harm: the schedule of tries, and the lines in the log.

The caller counts its own work, such as the versions of a table, and passes the current number. A
chore that fails each time is tried at these numbers:

    number                      0   1   2   4   8   16   32   64   96  ...
    failures after this try     1   2   3   4   5    6    7    8    9

The schedule depends only on the number of failures. So a process that continues the work of another
process needs only this number.

The first failure since the chore last worked is logged as a warning. A process that continues the
count of another process does not warn, because the other process has logged a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from checkpoint_store.errors import (
    CheckpointStoreError,
    StoreAccessError,
    StoreUnavailableError,
)

_LOG = logging.getLogger(__name__)
_MOST_BETWEEN = 32
# Errors after which the log names the needed rights. Other errors have their own advice, or are no
# fault of the store.
_REFUSALS = (StoreAccessError, OSError, MemoryError)
_T = TypeVar("_T")


@dataclass
class Chore:
    """One kind of work, and the number of failures since the work last succeeded. `effect`: the
    consequence of a failure; `needs`: the rights that the work needs on its store."""

    name: str
    effect: str
    needs: str
    failures: int = 0

    def is_due(self, number: int) -> bool:
        """Return True if the chore is to be tried at this number. Without failures, every number is
        due. After n failures, the multiples of 2^(n-1) are due, or the multiples of 32 if 2^(n-1)
        is greater."""
        return not self.failures or number % min(1 << (self.failures - 1), _MOST_BETWEEN) == 0


def try_chore(chore: Chore, number: int, url: str, do: Callable[[], _T], otherwise: _T) -> _T:
    """Return the result of `do`, or `otherwise` if the chore is not due or fails. `url`: the URL of
    the store, for the log."""
    if not chore.is_due(number):
        return otherwise
    try:
        done = do()
    except Exception as error:  # no error of a chore may fail the work of its caller
        _log_failure(chore, url, error)
        chore.failures += 1
        return otherwise
    if chore.failures:
        _LOG.info("%s of %s works again, after %d failures", chore.name, url, chore.failures)
    chore.failures = 0
    return done


def _log_failure(chore: Chore, url: str, error: Exception) -> None:
    is_expected = isinstance(error, CheckpointStoreError | OSError)
    _LOG.log(
        logging.INFO if chore.failures else logging.WARNING,
        "%s of %s failed, which harms no batch: %s. It is tried again later. %s%s",
        chore.name,
        url,
        _problem(error),
        chore.effect,
        f" {chore.needs}" if isinstance(error, _REFUSALS) else "",
        exc_info=None if is_expected else error,
    )


def _problem(error: Exception) -> str:
    """Return the text of a failure, without the error's advice, which is meant for failed
    batches."""
    if isinstance(error, StoreAccessError | StoreUnavailableError):
        return error.problem
    return f"{type(error).__name__}: {error}"
