"""The notes of an error, to print after the message."""

from __future__ import annotations

from collections.abc import Sequence


def notes_of(error: BaseException) -> Sequence[str]:
    """The notes of an error, in order."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return notes
