"""When a subtask replaces its chain of changelogs by a snapshot.

A snapshot writes as many rows as the state has, so it is due when the changelogs since the last
one hold at least as many: the bytes written stay within twice the bytes of the changes (I7), and
a restore reads at most about twice the state. `MAX_FILES` bounds the length of a chain, and so of a
manifest, where a large state changes little or was written by many subtasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_store.state_handle import StateHandle

MAX_FILES = 200


def snapshot_is_due(handles: Sequence[StateHandle], entries: int, min_changelogs: int) -> bool:
    """Whether a state of `entries` entries, kept as `handles`, should be written as a snapshot."""
    if len(handles) >= MAX_FILES:
        return True
    changelogs = [handle for handle in handles if handle.kind == "changelog"]
    if len(changelogs) < min_changelogs:
        return False
    return sum(handle.rows for handle in changelogs) >= entries
