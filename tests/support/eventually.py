"""Waiting for what another thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it is true. Raises AssertionError."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
