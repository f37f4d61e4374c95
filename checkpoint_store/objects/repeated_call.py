"""A call that a background thread repeats while some work lasts, to show other processes, such as
the orphan sweep, that the work still goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from checkpoint_store.errors import CheckpointStoreError

_log = logging.getLogger(__name__)


@contextmanager
def repeated(call: Callable[[], None], every_seconds: float, purpose: str) -> Iterator[None]:
    """Call `call` every `every_seconds` during a `with`. A call that fails on the store is logged
    with its purpose ("to …"), and the repetition continues."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_seconds):
            try:
                call()
            except CheckpointStoreError:
                _log.warning("a request %s has failed", purpose, exc_info=True)

    repeating = threading.Thread(target=repeat, name="cowstate-repeated", daemon=True)
    repeating.start()
    try:
        yield
    finally:
        ended.set()
        repeating.join()
