"""An object store that outlasts short failures of the one it wraps.

Only OSErrors are tried again (time-outs, broken connections, 5xx and SlowDown answers): a missing
object, a taken name, a refused permission or a bug stays what it is. The waits grow exponentially,
with jitter, up to a bound; then StoreUnavailableError says what was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_random,
)

from checkpoint_store.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreUnavailableError,
)
from checkpoint_store.object_store import ObjectInfo, ObjectStore

_T = TypeVar("_T")


class RetryingObjectStore:
    """`store`, each call tried up to `attempts` times.

    The first wait is about `wait_seconds`, each later one twice as long; no attempt begins after
    `give_up_seconds`.
    """

    def __init__(
        self,
        store: ObjectStore,
        attempts: int = 5,
        wait_seconds: float = 0.2,
        give_up_seconds: float = 10.0,
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._wait_seconds = wait_seconds
        self._give_up_seconds = give_up_seconds

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return self._store.url

    def put(self, name: str, data: bytes) -> None:
        """See ObjectStore. An attempt whose answer was lost may have created the object: when a
        later one finds the name taken by these very bytes, they are its own."""
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
            return self._store.get(name) == data
        except ObjectMissingError:
            return False

    def get(self, name: str) -> bytes:
        """See ObjectStore."""
        return self._call(f"reading {name}", lambda: self._store.get(name))

    def list(self, directory: str) -> Sequence[ObjectInfo]:
        """See ObjectStore."""
        return self._call(f"listing {directory}", lambda: self._store.list(directory))

    def list_directories(self, directory: str) -> Sequence[str]:
        """See ObjectStore."""
        return self._call(f"listing {directory}", lambda: self._store.list_directories(directory))

    def delete(self, names: Sequence[str]) -> None:
        """See ObjectStore."""
        what = names[0] if len(names) == 1 else f"{len(names)} objects"
        self._call(f"deleting {what}", lambda: self._store.delete(names))

    def _call(self, operation: str, function: Callable[[], _T]) -> _T:
        def give_up(state: RetryCallState) -> _T:
            assert state.outcome is not None
            error = state.outcome.exception()
            raise StoreUnavailableError(
                self.url, operation, state.attempt_number, f"{type(error).__name__}: {error}"
            ) from error

        retrying = Retrying(
            retry=retry_if_exception_type(OSError),
            stop=stop_after_attempt(self._attempts) | stop_after_delay(self._give_up_seconds),
            wait=wait_exponential(self._wait_seconds, max=4.0) + wait_random(0, self._wait_seconds),
            retry_error_callback=give_up,
        )
        return retrying(function)
