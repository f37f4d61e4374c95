"""What programs import of `objects.object_store`, by the name it always had."""

from checkpoint_store.objects.object_store import (
    FsspecObjectStore,
    LocalObjectStore,
    ObjectInfo,
    ObjectStore,
    open_object_store,
)
from checkpoint_store.objects.store_url import absolute_url

__all__ = [
    "FsspecObjectStore",
    "LocalObjectStore",
    "ObjectInfo",
    "ObjectStore",
    "absolute_url",
    "open_object_store",
]
