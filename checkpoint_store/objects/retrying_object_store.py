"""An object store that outlasts outages of the wrapped store.

Only OSErrors are tried again (time-outs, broken connections, 5xx and SlowDown answers). A missing
object, a taken name, a refused permission or a bug is raised at once. A call is tried again for a
time, not for a number of attempts. Before each further attempt the call waits for a random part of
an exponentially growing time with an upper bound, so that the calls of many hosts do not all come
back at once. At the end StoreUnavailableError names the failed operation and the seconds. The log
has a line or two about an outage, see store_outages, and at level DEBUG the client library's last
traceback.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from checkpoint_store.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreUnavailableError,
)
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS, StoreCall

if TYPE_CHECKING:
    from tenacity import RetryCallState

_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 5.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RetryingObjectStore:
    """The wrapped `store`, with each call tried again for `retry_seconds` after its first failure.
    `clock` gives seconds; `sleep` waits for a number of seconds."""

    def __init__(
        self,
        store: ObjectStore,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._sleep = sleep

    @property
    def url(self) -> str:
        return self._store.url

    def put(self, name: str, data: bytes) -> None:
        """See ObjectStore. An attempt with a lost answer may have created the object. If a later
        attempt finds the name taken by an object with exactly the same bytes, the call has
        succeeded."""
        tried = 0

        def attempt() -> None:
            nonlocal tried
            tried += 1
            try:
                self._store.put(name, data)
            except ObjectExistsError:
                if tried == 1 or not self._holds(name, data):
                    raise

        self._call(f"writing {name}", attempt)

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            # A large object may be a mapped file, and a mapped file never equals bytes.
            return memoryview(data) == self._store.get(name)
        except ObjectMissingError:
            return False

    def get(self, name: str) -> bytes:
        return self._call(f"reading {name}", lambda: self._store.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._call(f"reading {name}", lambda: self._store.get_range(name, start, length))

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        return self._call(f"listing {directory}", lambda: self._store.list(directory, prefix))

    def list_directories(self, directory: str) -> Sequence[str]:
        return self._call(f"listing {directory}", lambda: self._store.list_directories(directory))

    def delete(self, names: Sequence[str]) -> None:
        objects = names[0] if len(names) == 1 else f"{len(names)} objects"
        self._call(f"deleting {objects}", lambda: self._store.delete(names))

    def _call(self, operation: str, function: Callable[[], _T]) -> _T:
        with StoreCall(self.url, self._retry_seconds, self._clock) as call:
            try:
                return function()
            except OSError as error:
                failure = error
            return self._repeated(call, operation, function, failure)

    def _repeated(
        self, call: StoreCall, operation: str, function: Callable[[], _T], failure: OSError
    ) -> _T:
        """Try a call again. `failure`: the error of the call's first attempt."""
        # Imported only after a failure: tenacity imports asyncio and many more modules.
        from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

        jitter = wait_random_exponential(_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS)
        failures = [failure]

        def attempt() -> _T:
            if failures:
                raise failures.pop()
            return function()

        def give_up(state: RetryCallState) -> _T:
            error = _error_of(state)
            _log.debug("%s in %s is given up", operation, self.url, exc_info=error)
            seconds = call.seconds_failing()
            # Without a cause: the tracebacks of client libraries would fill the logs of Spark.
            raise StoreUnavailableError(self.url, operation, seconds, _problem(error))

        return Retrying(
            retry=retry_if_exception_type(OSError),
            after=lambda state: call.fails(_problem(_error_of(state))),
            stop=lambda _: not call.seconds_left(),
            wait=lambda state: min(jitter(state), call.seconds_left()),
            retry_error_callback=give_up,
            sleep=self._sleep,
        )(attempt)


def _error_of(state: RetryCallState) -> BaseException:
    assert state.outcome is not None
    error = state.outcome.exception()
    assert error is not None
    return error


def _problem(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
