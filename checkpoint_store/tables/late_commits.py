"""Finds out if a commit took the number of a version that retention had deleted. Pure.

A writer reads version n, and puts n + 1. Suppose that the writer pauses between the two until
others have committed many versions and retention has deleted n and n + 1. Then the name of n + 1 is
free again: the put succeeds, and no reader counts the version. Retention deletes the oldest version
first, so while n exists, n + 1 was never deleted. If n is gone, the newest version tells:

    it has the batch, or the files, of the commit         the put came in time
    the commit is of a query, whose batch is missing      too late
    versions between n + 1 and the newest are missing     too late, because retention leaves no gap
    otherwise                                             nobody can tell
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from checkpoint_store.tables.table_version import TableVersion

Standing = Literal["counts", "late", "unknown"]


def standing_of(
    put: TableVersion, writer: str, newest: TableVersion, numbers: Sequence[int]
) -> Standing:
    """Decide if a version counts that was put while its preceding version is gone: the version
    counts, came too late, or nobody can tell. `newest`: the newest version; `numbers`: the numbers
    of all existing versions."""
    if {handle.name for handle in put.changes} & newest.object_names():
        return "counts"
    if put.run is not None:
        is_held = newest.batches.get(writer, -1) >= put.batches[writer]
        return "counts" if is_held else "late"
    has_gap = put.version in numbers and put.version + 1 not in numbers
    return "late" if has_gap else "unknown"
