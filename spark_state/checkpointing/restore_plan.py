"""How a subtask gets from the state it holds to the state an epoch starts from.

State is a function of the files it was built from, so two equal lists of handles are equal states.
A resident subtask that is where it should be does nothing; one that already ran this epoch undoes
it (I6: O(changes)); one that missed epochs, which another host ran, applies only their changelogs;
anything else is restored from scratch. A zombie's files are in no checkpoint that is built upon,
so state that contains them never equals or begins the target (I4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle

Handles = tuple[StateHandle, ...]


@dataclass(frozen=True, slots=True)
class Resident:
    """What a subtask holds: the files its state equals, and those before its sealed epoch."""

    handles: Handles
    before_sealed: Handles | None


@dataclass(frozen=True, slots=True)
class Keep:
    """The resident state is the one to start from."""


@dataclass(frozen=True, slots=True)
class UndoSealed:
    """Undo the last sealed epoch."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Apply these files to the resident state."""

    handles: Handles


@dataclass(frozen=True, slots=True)
class Restore:
    """Begin with an empty backend and apply these files."""

    handles: Handles


RestorePlan = Keep | UndoSealed | Extend | Restore


def with_snapshot(handles: Handles, snapshot: Handles, key_groups: KeyGroupRange) -> Handles:
    """`handles` with the files of a snapshot in their place, which hold their state of
    `key_groups`. The other key groups still need the older files."""
    narrowed = (
        replace(handle, key_groups=remaining)
        for handle in handles
        for remaining in handle.key_groups.without(key_groups)
    )
    return (*narrowed, *snapshot)


def plan_restore(resident: Resident | None, target: Handles) -> RestorePlan:
    """The cheapest way from `resident` (None: nothing in memory) to `target`."""
    if resident is None:
        return Restore(target)
    if resident.handles == target:
        return Keep()
    if resident.before_sealed == target:
        return UndoSealed()
    length = len(resident.handles)
    if length and target[:length] == resident.handles:
        return Extend(target[length:])
    return Restore(target)
