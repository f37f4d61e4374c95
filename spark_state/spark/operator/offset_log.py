"""The newest batch in which Spark ran an operator, from the offset log of its query. Pure.

A line of an entry has the offset of a source, in the order of the sources in the query's plan. If
no source below an operator has moved in a batch, Spark does not run the operator in it. Otherwise
it does, and the batch is committed only with the operator's epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

_NAMED = "v2"
_VERSIONS = ("v1", _NAMED)
_NO_OFFSET = "-"


def offsets_in(entry: str) -> list[str] | None:
    """The offsets of an entry, by source; None if the entry does not tell them by their order."""
    version, _, *offsets = entry.split("\n")
    if version.rstrip() not in _VERSIONS or version.rstrip() == _NAMED:
        return None
    return offsets


def newest_epoch(
    entry_of: Callable[[int], str | None], committed: int, places: Sequence[int], sources: int
) -> int | None:
    """The newest epoch, not after `committed`, of an operator that reads the sources at `places`.

    `entry_of`: the offset log; `sources`: the number of sources of the query. None if the operator
    has no epoch yet, or if the log does not tell: an entry is gone, or its form is not known.
    """
    for batch in range(committed, -1, -1):
        offsets, before = (_offsets(entry_of, number, sources) for number in (batch, batch - 1))
        if offsets is None or before is None:
            return None
        if any(_has_moved(before[place], offsets[place]) for place in places):
            return batch
    return None


def _offsets(entry_of: Callable[[int], str | None], batch: int, sources: int) -> list[str] | None:
    if batch < 0:
        return [_NO_OFFSET] * sources
    entry = entry_of(batch)
    offsets = None if entry is None else offsets_in(entry)
    return offsets if offsets is not None and len(offsets) == sources else None


def _has_moved(before: str, after: str) -> bool:
    if before == after:
        return False
    try:
        return bool(json.loads(before) != json.loads(after))
    except ValueError:
        return True
