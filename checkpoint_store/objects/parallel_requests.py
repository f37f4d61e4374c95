"""Parallel requests to a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import count
from typing import TypeVar

_AT_ONCE = 16
_THREADS = 128

_A = TypeVar("_A")
_T = TypeVar("_T")


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads of this process for requests. A thread starts when no other thread is free."""
    return ThreadPoolExecutor(_THREADS, "cowstate-requests")


# A forked process has none of the threads.
os.register_at_fork(after_in_child=_pool.cache_clear)


def in_parallel(
    function: Callable[[_A], _T], arguments: Iterable[_A], most: int = _AT_ONCE
) -> list[_T]:
    """Call `function` for each argument, and return the results in order. Several threads make the
    calls, because each call waits for the store. `most`: the number of parallel calls.

    The calling thread makes the first call, and then all calls that no other thread has begun. So
    short calls do not wait for another thread to start, and `function` may call `in_parallel`, too.
    After an error no further call begins; the calls under way are waited for.
    """
    todo = list(arguments)
    results = dict[int, _T]()
    errors = list[BaseException]()
    later = count(1)  # each number goes to one thread only

    def call_some(place: int) -> None:
        try:
            while place < len(todo) and not errors:
                results[place] = function(todo[place])
                place = next(later)
        except BaseException as error:
            errors.append(error)

    helpers = list[Future[None]]()
    try:
        for _ in range(min(most, len(todo)) - 1):
            helpers.append(_pool().submit(lambda: call_some(next(later))))
        call_some(0)
        wait([helper for helper in helpers if not helper.cancel()])
    except BaseException as error:  # no further thread can start, or an interrupt
        errors.append(error)
        wait([helper for helper in helpers if not helper.cancel()])
    try:
        if errors:
            raise errors[0]
        return [results[place] for place in range(len(todo))]
    finally:
        errors.clear()  # an error refers to this frame, and would keep its objects
