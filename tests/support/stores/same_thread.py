"""Requests to a store in memory, one after the other: nobody waits there, and a thread for each is
most of what a test would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any
from unittest import mock


class SameThreadExecutor(Executor):
    """Calls at once what it is asked to call."""

    def __init__(self, max_workers: int) -> None:
        del max_workers

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """The call, which is over."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


@contextmanager
def requests_in_same_thread() -> Iterator[None]:
    """Meanwhile `in_parallel` starts no threads."""
    module = "checkpoint_store.objects.parallel_requests.ThreadPoolExecutor"
    with mock.patch(module, SameThreadExecutor):
        yield
