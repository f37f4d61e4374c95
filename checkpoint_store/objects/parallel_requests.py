"""Parallel requests to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_THREADS = 16

_A = TypeVar("_A")
_T = TypeVar("_T")


def in_parallel(
    function: Callable[[_A], _T], arguments: Iterable[_A], most: int = _THREADS
) -> list[_T]:
    """Call `function` for each argument, and return the results in order. Several threads make the
    calls, because each call waits for the store. `most`: the number of parallel calls.

    The calling thread makes the first call, which saves a thread. Often there are only two calls,
    and starting a thread takes longer than a read from a local disk.
    """
    todo = list(arguments)
    if len(todo) <= 1:
        return [function(argument) for argument in todo]
    with ThreadPoolExecutor(min(most, len(todo)) - 1) as pool:
        others = pool.map(function, todo[1:])
        try:
            return [function(todo[0]), *others]
        except BaseException:
            # `others` cancels its waiting requests only if one of its own requests fails.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
