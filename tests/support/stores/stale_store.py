"""A store with old listings, like a network file system that caches attributes.

A listing shows puts and deletes of other clients only after a while. A read by name sees the
current object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.stores.fake_object_store import DictObjectStore


@dataclass
class ListingsOfAMinuteAgo(DictObjectStore):
    """One client of the store `shared`, which has other clients. Until `refresh`, a listing shows
    the objects at the client's start, with the client's own changes."""

    shared: DictObjectStore = field(default_factory=DictObjectStore)

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Drop the cache: listings show the current objects."""
        self.objects, self.modified = dict(self.shared.objects), dict(self.shared.modified)

    def put(self, name: str, data: bytes) -> None:
        self.shared.now = self.now
        self.shared.put(name, data)
        super().put(name, data)

    def get(self, name: str) -> bytes:
        return self.shared.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.shared.get_range(name, start, length)

    def delete(self, names: Sequence[str]) -> None:
        self.shared.delete(names)
        super().delete(names)
