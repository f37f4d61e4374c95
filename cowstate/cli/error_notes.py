"""What is to be told of an error beside its message."""

from __future__ import annotations

from collections.abc import Sequence


def notes_of(error: BaseException) -> Sequence[str]:
    """The notes that were added to an error, in their order."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return notes
