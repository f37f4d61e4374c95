"""An object that an epoch or a version names."""

from __future__ import annotations

import hashlib

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore


def read_named(store: ObjectStore, name: str, epoch: int) -> bytes:
    """The bytes of an object that `epoch` names. ObjectMissingError has the epoch, too."""
    try:
        return store.get(name)
    except ObjectMissingError as error:
        raise ObjectMissingError(store.url, name, epoch) from error


def read_range(store: ObjectStore, name: str, epoch: int, start: int, length: int) -> bytes:
    """So many bytes of an object that `epoch` names, from `start` on. Raises ObjectMissingError,
    and CorruptObjectError if the store gives fewer or more."""
    try:
        data = store.get_range(name, start, length)
    except ObjectMissingError as error:
        raise ObjectMissingError(store.url, name, epoch) from error
    if len(data) != length:
        problem = f"{len(data)} bytes instead of {length} from byte {start} on"
        raise CorruptObjectError(store.url, name, problem, epoch)
    return data


def read_verified(store: ObjectStore, name: str, epoch: int, length: int, checksum: str) -> bytes:
    """As read_named, of an object with this length and checksum (sha256, hex). Raises
    CorruptObjectError, too."""
    data = read_named(store, name, epoch)
    if (len(data), hashlib.sha256(data).hexdigest()) != (length, checksum):
        problem = (
            f"its {len(data)} bytes are not the {length} bytes with SHA-256 {checksum} that were "
            "written"
        )
        raise CorruptObjectError(store.url, name, problem, epoch)
    return data
