"""The interface to object storage: immutable objects by name under one URL.

An object is created whole, read whole or in part, listed and deleted; never changed, renamed or
appended to (I1). Stores hold no connection. Several threads may use one store; a store may be
pickled, and used after a fork.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from checkpoint_store.objects.fsspec_object_store import open_fsspec_store
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.store_url import absolute_url


class ObjectStore(Protocol):
    """Objects by '/'-separated names under one URL. All methods raise StoreAccessError if the store
    cannot be used as configured (permission, credentials, read-only, no such bucket), and OSError
    for every failure that may be temporary."""

    @property
    def url(self) -> str:
        """The store's URL, for messages."""

    def put(self, name: str, data: bytes) -> None:
        """Create an object, durable on return. No reader ever finds a part of the object. Raises
        ObjectExistsError if the name is taken and the store can tell; callers never rely on the
        error, because not every store can tell."""

    def get(self, name: str) -> bytes:
        """Return the whole object. Raises ObjectMissingError."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object, from byte `start` on; fewer bytes, or none, if the
        object ends earlier. `length` is at least 1. Raises ObjectMissingError. If the object is
        shorter than `length`, a server without range requests may give other bytes, so callers
        verify a checksum."""

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        """Return the current objects directly in `directory` whose names below `directory` begin
        with `prefix`, in any order. For the directory `UNPUBLISHED`, return the objects that
        writers have begun."""

    def list_directories(self, directory: str) -> Sequence[str]:
        """Return the names of the current directories directly in `directory`, without
        `UNPUBLISHED`."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. A missing object is no error."""


def open_object_store(url: str, storage_options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Open the store at `url`: a path, file://, or any URL that fsspec knows. fsspec's client gets
    `storage_options` and the options in the URL. Nothing is created or contacted yet. Raises
    StoreAccessError."""
    url = absolute_url(url)
    protocol, separator, path = url.partition("://")
    if not separator or protocol in ("file", "local"):
        return LocalObjectStore(Path(path if separator else url).absolute())
    return open_fsspec_store(url, storage_options or {})
