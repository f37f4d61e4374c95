"""The location of the query's checkpoint: a store belongs to one location (I9).

Each start of a run names the location that the run's driver told: as a digest in the object's name,
in full in the object's body. A query whose checkpoint was copied to another location is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from checkpoint_store.epochs.checkpoint_codec import decode_begun_checkpoint
from checkpoint_store.epochs.operator_layout import BegunName
from checkpoint_store.errors import ObjectMissingError
from checkpoint_store.files.document import Source
from checkpoint_store.objects.object_store import ObjectStore

_DIGITS_OF_DIGEST = 12


def digest_of(checkpoint: str) -> str:
    """The digest that stands for a checkpoint's location in names: 12 hex digits."""
    return hashlib.sha256(checkpoint.encode()).hexdigest()[:_DIGITS_OF_DIGEST]


def owner_of(names: Iterable[BegunName]) -> BegunName | None:
    """The start of the newest run with a known checkpoint location. The store belongs to this
    location. None if no run told a location."""
    told = (name for name in names if name.checkpoint is not None and name.is_start)
    return max(told, key=lambda name: name.run.number, default=None)


def location_of(store: ObjectStore, name: BegunName) -> str | None:
    """The location in the body of the named start; None if the object is gone."""
    try:
        data = store.get(str(name))
    except ObjectMissingError:
        return None
    return decode_begun_checkpoint(data, Source(store.url, str(name)))


def has_one_location(names: Iterable[BegunName]) -> bool:
    """True if all runs since the query was last taken back or attached told the same location.
    False if a run told no location, because the run may use a copy of the checkpoint."""
    starts = sorted((name for name in names if name.is_start), key=lambda name: name.run.number)
    ways_back = [index for index, name in enumerate(starts) if name.way == "back"]
    locations = {name.checkpoint for name in starts[ways_back[-1] if ways_back else 0 :]}
    return len(locations) <= 1 and None not in locations
