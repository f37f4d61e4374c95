"""A store whose listings may be old, as those of a network file system with a cache of attributes
are: what other clients put or deleted shows up after a while. What is asked for by name is as it
is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from checkpoint_store.objects.object_store import ObjectInfo
from tests.support.stores.fake_object_store import DictObjectStore


@dataclass
class ListingsOfAMinuteAgo(DictObjectStore):
    """One client of a store that others use, too: `shared`. Until `refresh`, its listings show what
    was there when it began, and what it did itself."""

    shared: DictObjectStore = field(default_factory=DictObjectStore)

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """The cache is over."""
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

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        return super().list(directory, prefix)
