"""Damaged objects that others stand for: a process tells of each once."""

from __future__ import annotations

import logging
from functools import lru_cache

from checkpoint_store.errors import CheckpointStoreError

_log = logging.getLogger(__name__)
_REMEMBERED = 1024


def tell_passed_over(kind: str, error: CheckpointStoreError) -> None:
    """Log that an object is passed over, and why."""
    _tell(f"a damaged {kind} is passed over: {error}")


@lru_cache(_REMEMBERED)
def _tell(message: str) -> None:
    _log.warning("%s", message)
