"""An object that describes its store: whoever comes first creates it, and all write the same."""

from __future__ import annotations

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore


def read_or_create(store: ObjectStore, name: str, expected: bytes) -> bytes:
    """The bytes of an object; `expected` if it was not there before."""
    try:
        return store.get(name)
    except ObjectMissingError:
        put_if_absent(store, name, expected)
        return store.get(name)


def put_if_absent(store: ObjectStore, name: str, data: bytes) -> bool:
    """Create an object; False if the store knows that its name is taken."""
    try:
        store.put(name, data)
    except ObjectExistsError:
        return False
    return True
