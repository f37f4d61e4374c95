"""Objects that cannot be read, and that are passed over: a process tells of each once."""

from __future__ import annotations

import logging
from functools import lru_cache

from checkpoint_store.errors import CheckpointStoreError

_log = logging.getLogger(__name__)
_REMEMBERED = 1024


def tell_passed_over(kind: str, error: CheckpointStoreError) -> None:
    """Log that a damaged object is passed over, because others stand for it, and why."""
    _tell(f"a damaged {kind} is passed over: {error}")


def tell_unreadable(error: CheckpointStoreError) -> None:
    """Log that clean-up goes on although an object cannot be read, and why it cannot."""
    _tell(f"clean-up keeps all that an unreadable object may name: {error}")


@lru_cache(_REMEMBERED)
def _tell(message: str) -> None:
    _log.warning("%s", message)
