"""An object that an epoch or a version names."""

from __future__ import annotations

from checkpoint_store.errors import ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore


def read_named(store: ObjectStore, name: str, epoch: int) -> bytes:
    """The bytes of an object that `epoch` names. ObjectMissingError has the epoch, too."""
    try:
        return store.get(name)
    except ObjectMissingError as error:
        raise ObjectMissingError(store.url, name, epoch) from error
