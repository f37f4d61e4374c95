"""The unique part of an object's name: no two writers share a name (I1)."""

from __future__ import annotations

from uuid import uuid4


def unique_of_uuid() -> str:
    """Return 12 random hex digits."""
    return uuid4().hex[:12]
