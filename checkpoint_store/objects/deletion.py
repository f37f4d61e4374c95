"""Deleting what no version needs: the words for it, the order, and the orphan sweep (I8).

A version is an epoch of an operator, or a version of a table. The words are the same for both:

    retained    a version that stays readable: the newest ones, `min_to_retain` at least
    expired     a version that is older than all retained ones: it is deleted
    needed      an object that a retained version names, or may name if it cannot be read
    orphan      an object that no version needs, and of which no expired version tells: of a killed
                writer, a zombie, a replaced attempt, or a version that could not be read
    grace       the age from which an orphan is deleted. It exceeds the time that any writer takes
                from an object to the version that names it

Retention deletes expired versions, and with them what only they needed. The orphan sweep looks at
all objects, so it comes less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import uuid4

from checkpoint_store.object_names import is_barrier, is_group
from checkpoint_store.objects.chore import Chore
from checkpoint_store.objects.object_store import UNPUBLISHED, ObjectInfo, ObjectStore

LEAST_TO_RETAIN = 2
_CLOCK = "clock"


def check_min_to_retain(option: str, min_to_retain: int) -> None:
    """Raise ValueError, which names the option, if too few versions would be retained: a version is
    built upon the one before it."""
    if min_to_retain < LEAST_TO_RETAIN:
        raise ValueError(f"{option} is {min_to_retain}; it must be at least {LEAST_TO_RETAIN}")


def delete_in_turn(store: ObjectStore, *groups: Sequence[str]) -> int:
    """Delete one group of objects after the other; how many there were.

    What names others comes before these: whoever is stopped half way leaves orphans, and never a
    named object missing.
    """
    for names in groups:
        if names:
            store.delete(names)
    return sum(map(len, groups))


def deletion_chores(versions: str, deleter: str, place: str) -> tuple[Chore, Chore]:
    """Retention and the orphan sweep, as chores. `versions`: the word for these; `deleter`: who
    deletes; `place`: what the objects are of."""
    effect = "Until then nothing is deleted."
    needs = f"{deleter} must be allowed to list and to delete the objects below the {place}'s URL"
    retention = Chore(f"deleting expired {versions}", effect, needs)
    return retention, Chore("deleting orphans", effect, needs)


IsNeeded = Callable[[str], bool]


class SweptObjects(Protocol):
    """The objects of a store as the orphan sweep sees them. Both methods list the store anew."""

    def may_be_orphans(self) -> Iterable[ObjectInfo]:
        """All published objects that could be orphans. What is not ours is none of them."""

    def needed(self) -> IsNeeded:
        """Which of them are needed, by name, according to all versions that are there now."""


def time_of_store(store: ObjectStore, now: float) -> float:
    """The time by the clock that dates the objects of a store, and at most `now`, in seconds since
    1970: an object is dated for that. The clock of a machine may be ahead, and whatever others
    have just written would look old."""
    name = f"{UNPUBLISHED}/{_CLOCK}-{uuid4().hex}"
    store.put(name, b"")
    dated = [info.modified for info in store.list(UNPUBLISHED, name.rpartition("/")[2])]
    store.delete([name])
    return min([now, *(modified for modified in dated if modified is not None)])


def sweep_orphans(
    store: ObjectStore, objects: SweptObjects, grace_seconds: float, now: float
) -> list[str]:
    """Delete the orphans last modified before `now - grace_seconds` (in seconds since 1970), and
    what was begun before that and never published; their names. An object of unknown age is kept.

    Reads all versions, so it is not for the hot path.
    """
    # What is old is listed before what is needed: a file that is named meanwhile is not missed.
    limit = now - grace_seconds
    published = _modified_before(limit, objects.may_be_orphans())
    unpublished = _modified_before(limit, store.list(UNPUBLISHED))
    is_needed = objects.needed()
    orphans = sorted([*unpublished, *(name for name in published if not is_needed(name))])
    groups = [name for name in orphans if is_group(name)]
    barriers = [name for name in orphans if is_barrier(name)]
    others = [name for name in orphans if not (is_group(name) or is_barrier(name))]
    delete_in_turn(store, groups, barriers, others)
    return orphans


def _modified_before(limit: float, infos: Iterable[ObjectInfo]) -> list[str]:
    return [info.name for info in infos if info.modified is not None and info.modified < limit]
