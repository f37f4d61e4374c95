"""Entries of listings, and limits to the names of objects. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.object_names import parse_object_name

UNPUBLISHED = ".unpublished"
"""Directory of a local store for files that are not published yet. A killed writer leaves its file
there, for the orphan sweep."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object's entry in a listing. `modified`: seconds since 1970, None if the store does not
    say."""

    name: str
    length: int
    modified: float | None

    @property
    def modified_ms(self) -> int:
        """The time of the last change in milliseconds since 1970, 0 if unknown."""
        return int((self.modified or 0) * 1000)


def below_store(url: str, name: str) -> str:
    """Return `name` if the name stays below its store. Raises StoreAccessError for any other
    name."""
    if parse_object_name(name) is None:
        raise StoreAccessError(url, f"{name!r} is no name of an object in it")
    return name
