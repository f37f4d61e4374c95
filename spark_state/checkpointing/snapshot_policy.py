"""When a subtask replaces its chain of changelogs by a snapshot.

A snapshot writes as many rows as the state has, so it is due when the changelogs since the last one
hold at least as many: the bytes written stay within twice the bytes of the changes (I7), and a
restore reads about twice the state. `MANY_FILES` does the same for the length of a chain, and so of
a manifest, where a large state changes little or was written by many subtasks.

It is written while epochs go on, and the barrier of a later one names it. A host that ends before
has written it for nothing, as where a scheduled run ends by itself after an epoch or two. So one
begins only once half of the changes that make one due were written since the host's restore: what
is lost stays within twice the bytes of the changes. Runs that are shorter leave the chain to grow.
When it holds twice what makes a snapshot due, it is overdue: the first epoch after the next restore
waits for a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_store.state_handle import StateHandle

MANY_FILES = 200


def snapshot_is_due(
    handles: Sequence[StateHandle],
    since_restore: Sequence[StateHandle],
    entries: int,
    min_changelogs: int,
) -> bool:
    """Whether a state of `entries` entries, kept as `handles`, should be written as a snapshot
    while epochs go on. `since_restore`: those handles that came after the host's restore."""
    return _hold(handles, 1.0, entries, min_changelogs) and _hold(
        since_restore, 0.5, entries, min_changelogs
    )


def snapshot_is_overdue(handles: Sequence[StateHandle], entries: int, min_changelogs: int) -> bool:
    """Whether the first epoch after a restore should wait for a snapshot."""
    return _hold(handles, 2.0, entries, min_changelogs)


def _hold(
    handles: Sequence[StateHandle], snapshots: float, entries: int, min_changelogs: int
) -> bool:
    """Whether a chain holds so many times what makes a snapshot due."""
    if len(handles) >= snapshots * MANY_FILES:
        return True
    changelogs = [handle for handle in handles if handle.kind == "changelog"]
    if len(changelogs) < snapshots * min_changelogs:
        return False
    return sum(handle.rows for handle in changelogs) >= snapshots * entries
