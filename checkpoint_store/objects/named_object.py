"""Names of objects, and calls that use the names.

The calls list the objects whose names have a given form, read an object (errors have the object's
epoch), make names that no other writer has (I1), and create objects under names that several
writers share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from checkpoint_store.errors import CorruptObjectError, ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_info import ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore

_Name = TypeVar("_Name")


def unique_of_uuid() -> str:
    """Return the unique part of an object's name, 12 random hex digits."""
    return uuid4().hex[:12]


def read_or_create(store: ObjectStore, name: str, expected: bytes) -> bytes:
    """Return the bytes of an object whose name several writers share. Create the object with the
    bytes `expected` if the object is missing."""
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


def list_named(
    store: ObjectStore, directory: str, parse: Callable[[str], _Name | None], prefix: str = ""
) -> dict[_Name, ObjectInfo]:
    """List the objects whose names `parse` recognizes, by the parsed name. Costs one listing.
    `prefix`: the beginning of the wanted names below `directory`."""
    named = ((parse(info.name), info) for info in store.list(directory, prefix))
    return {name: info for name, info in named if name is not None}


def read_named(store: ObjectStore, name: str, epoch: int) -> bytes:
    """Read an object of an epoch. Raises ObjectMissingError with the epoch."""
    try:
        return store.get(name)
    except ObjectMissingError as error:
        raise ObjectMissingError(store.url, name, epoch) from error


def read_range(store: ObjectStore, name: str, epoch: int, start: int, length: int) -> bytes:
    """Read `length` bytes of an object of an epoch, from `start` on. Raises ObjectMissingError, and
    CorruptObjectError if the store gives fewer or more bytes."""
    try:
        data = store.get_range(name, start, length)
    except ObjectMissingError as error:
        raise ObjectMissingError(store.url, name, epoch) from error
    if len(data) != length:
        problem = f"{len(data)} bytes instead of {length} from byte {start} on"
        raise CorruptObjectError(store.url, name, problem, epoch)
    return data


def read_verified(store: ObjectStore, name: str, epoch: int, length: int, checksum: str) -> bytes:
    """Read an object of an epoch, and check its length and checksum (sha256, hex). Raises
    ObjectMissingError with the epoch, and CorruptObjectError if the object differs."""
    data = read_named(store, name, epoch)
    if (len(data), hashlib.sha256(data).hexdigest()) != (length, checksum):
        problem = (
            f"its {len(data)} bytes are not the {length} bytes with SHA-256 {checksum} that were "
            "written"
        )
        raise CorruptObjectError(store.url, name, problem, epoch)
    return data
