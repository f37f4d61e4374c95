"""Objects under names that several writers share: the first writer creates the object."""

from __future__ import annotations

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore


def read_or_create(store: ObjectStore, name: str, expected: bytes) -> bytes:
    """Return the bytes of an object. Create the object with the bytes `expected` if the object is
    missing."""
    try:
        return store.get(name)
    except ObjectMissingError:
        put_if_absent(store, name, expected)
        return store.get(name)


def put_if_absent(store: ObjectStore, name: str, data: bytes) -> bool:
    """Create an object. Return False if the store knows that the name is taken."""
    try:
        store.put(name, data)
    except ObjectExistsError:
        return False
    return True
