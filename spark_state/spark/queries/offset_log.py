"""The newest batch in which Spark ran an operator, from the offset log of its query. Pure.

    v1    a line for each source with its offset, in the order of the sources in the query's plan
    v2    offsets by the names of sources: shows only that the offset of some source has changed

A source has moved in a batch if its offset has changed. If no source of an operator has moved in a
batch, Spark does not run the operator in the batch. Otherwise Spark runs the operator, and commits
the batch only with the operator's epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from spark_state.subtasks.epoch_request import NEVER_RUN

_NO_OFFSET = "-"
_KEYS_OF_CLOCK = {"tick", "query"}


def newest_epoch(
    entry_of: Callable[[int], str | None], committed: int, places: Sequence[int], sources: int
) -> int | None:
    """The newest epoch, not after `committed`, of an operator that reads the sources at `places`.

    `entry_of`: returns an entry of the offset log; `sources`: the number of sources of the query.
    NEVER_RUN if the operator has run in no batch. None if the log does not tell the epoch: an entry
    is gone, its form is unknown, or `places` is empty because the operator's sources are unknown.
    """
    if not places and committed >= 0:
        return None
    reads_all = len(places) == sources
    for batch in range(committed, -1, -1):
        offsets = _offsets(entry_of(batch), sources, reads_all=reads_all)
        before: list[str] | None = [_NO_OFFSET] * sources
        if batch > 0:
            before = _offsets(entry_of(batch - 1), sources, reads_all=reads_all)
        if offsets is None or before is None:
            return None
        if any(_has_moved(before[place], offsets[place]) for place in places):
            return batch
    return NEVER_RUN


def places_beside_clock(entry: str | None) -> tuple[tuple[int, ...], int]:
    """The places of a query's sources without the clock, and the number of all sources, from an
    entry of the offset log. Without an entry: place 0, and a single source."""
    _, _, *offsets = ["", "", _NO_OFFSET] if entry is None else entry.split("\n")
    places = (place for place, offset in enumerate(offsets) if _keys(offset) != _KEYS_OF_CLOCK)
    return tuple(places), len(offsets)


def _keys(offset: str) -> set[str]:
    try:
        parsed = json.loads(offset)
    except ValueError:
        return set()
    return set(parsed) if isinstance(parsed, dict) else set()


def _offsets(entry: str | None, sources: int, *, reads_all: bool) -> list[str] | None:
    """The offset of each source in an entry, by place; None if the entry does not tell the offsets.
    `reads_all`: True if the operator reads all sources. Then an entry of v2 is enough: its whole
    text stands for the offset of each source."""
    version, _, *lines = [""] * 2 if entry is None else entry.split("\n")
    match version.rstrip():
        case "v1" if len(lines) == sources:
            return lines
        case "v2" if reads_all:
            return ["\n".join(lines)] * sources
    return None


def _has_moved(before: str, after: str) -> bool:
    if before == after:
        return False
    try:
        return bool(json.loads(before) != json.loads(after))
    except ValueError:
        return True
