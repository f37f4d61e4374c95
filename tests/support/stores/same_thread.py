"""Sequential requests to stores in memory.

A store in memory answers without waiting, and a thread for each request would be most of a test's
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any
from unittest import mock


class SameThreadExecutor(Executor):
    """An executor that runs each call at once in the caller's thread."""

    def __init__(self, max_workers: int) -> None:
        del max_workers

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run the call and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


@contextmanager
def requests_in_same_thread() -> Iterator[None]:
    """Let `in_parallel` start no threads during a `with` block."""
    module = "checkpoint_store.objects.parallel_requests.ThreadPoolExecutor"
    with mock.patch(module, SameThreadExecutor):
        yield
