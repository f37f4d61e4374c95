"""Warnings about unreadable objects, which are passed over; a process logs each warning once."""

from __future__ import annotations

import logging
from functools import lru_cache

from checkpoint_store.errors import CheckpointStoreError

_log = logging.getLogger(__name__)
_REMEMBERED = 1024


def tell_passed_over(kind: str, error: CheckpointStoreError) -> None:
    """Log a damaged object that is passed over, and the reason. Other objects replace the damaged
    object."""
    _tell(f"a damaged {kind} is passed over: {error}")


def tell_unreadable(error: CheckpointStoreError) -> None:
    """Log an unreadable object during clean-up, and the reason. Clean-up goes on."""
    _tell(f"clean-up keeps all that an unreadable object may name: {error}")


@lru_cache(_REMEMBERED)
def _tell(message: str) -> None:
    _log.warning("%s", message)
