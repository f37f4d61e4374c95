"""The part of an object's name that makes it its writer's own (I1)."""

from __future__ import annotations

from uuid import uuid4


def unique_of_uuid() -> str:
    """12 random hex digits."""
    return uuid4().hex[:12]
