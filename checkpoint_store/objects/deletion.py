"""Deletion of objects that no version needs: the terms, the order, and the orphan sweep (I8).

A version is an epoch of an operator, or a version of a table. The terms are the same for both:

    retained    a version that stays readable: the newest versions, at least `min_to_retain`
    expired     a version older than all retained versions: retention deletes expired versions
    needed      an object that a retained version names, or may name if the version is unreadable
    orphan      an object that no version needs and no expired version names: left by a killed
                writer, a zombie, a replaced attempt, or a version that could not be read
    grace       the age from which an orphan is deleted. Longer than any writer takes from the
                creation of an object to the version that names the object

Retention deletes expired versions, together with the objects that only expired versions needed. The
orphan sweep looks at all objects of a store, so the sweep runs less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import uuid4

from checkpoint_store.object_names import is_barrier, is_group
from checkpoint_store.objects.chore import Chore
from checkpoint_store.objects.object_info import UNPUBLISHED, ObjectInfo
from checkpoint_store.objects.object_store import ObjectStore

# Each version is built upon the version before.
LEAST_TO_RETAIN = 2
_CLOCK = "clock"


def delete_in_turn(store: ObjectStore, *groups: Sequence[str]) -> int:
    """Delete groups of objects in the given order, and return the number of objects. Callers give
    an object before the objects that it names. So a deletion that stops half-way leaves orphans,
    but never a name without its object."""
    for names in groups:
        if names:
            store.delete(names)
    return sum(map(len, groups))


def deletion_chores(versions: str, deleter: str, place: str) -> tuple[Chore, Chore]:
    """Create the chores for retention and for the orphan sweep. The arguments are words for the
    log: `versions`, such as "epochs"; `deleter`, the user or program that deletes; `place`, such as
    "store"."""
    effect = "Until then nothing is deleted."
    needs = f"{deleter} must be allowed to list and to delete the objects below the {place}'s URL"
    retention = Chore(f"deleting expired {versions}", effect, needs)
    return retention, Chore("deleting orphans", effect, needs)


IsNeeded = Callable[[str], bool]


class SweptObjects(Protocol):
    """The objects of a store, as the orphan sweep sees them. Both methods list the store anew."""

    def may_be_orphans(self) -> Iterable[ObjectInfo]:
        """Return all published objects that could be orphans. Objects of other programs are left
        out."""

    def needed(self) -> IsNeeded:
        """Return a function of an object's name: True if a current version needs the object."""


def time_of_store(store: ObjectStore, now: float) -> float:
    """Return the current time by the clock that dates the objects of a store, in seconds since
    1970. If the store's clock is ahead of `now`, or unknown, return `now`. The function puts an
    object to see its date. A machine's own clock may be ahead, and would make the newest objects of
    other writers look old."""
    name = f"{UNPUBLISHED}/{_CLOCK}-{uuid4().hex}"
    store.put(name, b"")
    dated = [info.modified for info in store.list(UNPUBLISHED, name.rpartition("/")[2])]
    store.delete([name])
    return min([now, *(modified for modified in dated if modified is not None)])


def sweep_orphans(
    store: ObjectStore, objects: SweptObjects, grace_seconds: float, now: float
) -> list[str]:
    """Delete orphans last modified before `now - grace_seconds` (in seconds since 1970), and
    unpublished files begun before the same time. Return the deleted names. An object of unknown age
    is kept. The sweep reads all versions, so the sweep is not for the hot path."""
    # List old objects before needed objects, so that a file named in between counts as needed.
    limit = now - grace_seconds
    published = modified_before(limit, objects.may_be_orphans())
    unpublished = modified_before(limit, store.list(UNPUBLISHED))
    is_needed = objects.needed()
    orphans = sorted([*unpublished, *(name for name in published if not is_needed(name))])
    groups = [name for name in orphans if is_group(name)]
    barriers = [name for name in orphans if is_barrier(name)]
    others = [name for name in orphans if not (is_group(name) or is_barrier(name))]
    delete_in_turn(store, groups, barriers, others)
    return orphans


def modified_before(limit: float, infos: Iterable[ObjectInfo]) -> list[str]:
    """Return the names of the objects last modified before a time. An object of unknown age is left
    out."""
    return [info.name for info in infos if info.modified is not None and info.modified < limit]
