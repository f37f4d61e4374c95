"""Plans the way from a subtask's state in memory to the state that an epoch starts from.

State is a function of the files that the subtask applied, so equal lists of handles mean equal
states. The target is the state that the epoch starts from. The plan is the first line that applies:

    memory equals the target                     Keep
    subtask has already run this epoch           UndoSealed: cost O(changes) (I6)
    another host ran the epochs in between       Extend: apply only the changelogs of these epochs
    anything else                                Restore: begin with an empty backend

A zombie is an attempt that still runs although Spark has replaced the attempt. A zombie's files are
in no checkpoint that an epoch builds upon. So a list of handles with such files never equals the
target's list, nor a beginning of the target's list (I4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle

Handles = tuple[StateHandle, ...]


@dataclass(frozen=True, slots=True)
class Resident:
    """The state in a subtask's memory. `handles`: the files that give this state when applied in
    order; `before_sealed`: the files that give the state before the sealed epoch, None if the
    sealed epoch cannot be undone."""

    handles: Handles
    before_sealed: Handles | None


@dataclass(frozen=True, slots=True)
class Keep:
    """Start from the resident state as it is."""


@dataclass(frozen=True, slots=True)
class UndoSealed:
    """Undo the last sealed epoch."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Apply `handles` to the resident state."""

    handles: Handles


@dataclass(frozen=True, slots=True)
class Restore:
    """Begin with an empty backend and apply all files of the target."""


RestorePlan = Keep | UndoSealed | Extend | Restore


def with_snapshot(handles: Handles, snapshot: Handles, key_groups: KeyGroupRange) -> Handles:
    """Return `handles` with `snapshot` in place of the handles' parts in `key_groups`. Other key
    groups still need the older files."""
    narrowed = (
        replace(handle, key_groups=remaining)
        for handle in handles
        for remaining in handle.key_groups.without(key_groups)
    )
    return (*narrowed, *snapshot)


def plan_restore(resident: Resident | None, target: Handles) -> RestorePlan:
    """Return the cheapest way from `resident` (None: nothing in memory) to `target`."""
    if resident is None:
        return Restore()
    if resident.handles == target:
        return Keep()
    if resident.before_sealed == target:
        return UndoSealed()
    length = len(resident.handles)
    if length and target[:length] == resident.handles:
        return Extend(target[length:])
    return Restore()
