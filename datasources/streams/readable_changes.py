"""Finds the changes that can still be read when some versions are gone.

The changes of a version come from the files that the version added. Preimages, the rows before the
changes, come from the state of the base: the version on which the version was built. For example,
each of the versions 0 to 5 was built on the version before it, and version 3 is gone:

    changes of 1, 2 and 5    can be read
    changes of 3             cannot be read
    changes of 4             can be read, but without preimages

Only a version and its base decide whether the changes of the version can be read. So batches of any
size give the same changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from checkpoint_store.objects.parallel_requests import in_parallel
from checkpoint_store.states.state_history import StateHistory, StateVersion
from datasources.options.version_choice import version_at


@dataclass(frozen=True, slots=True)
class VersionRun:
    """Changes after version `start` (None: from an empty state) up to `end`, without a gap.
    `size_bytes`: the size of the files of the changes."""

    start: int | None
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class VersionGap:
    """Changes after version `start` (None: from the beginning) up to `end` that cannot be read,
    because version `missing` is gone."""

    start: int | None
    end: int
    missing: int

    def __str__(self) -> str:
        after = "" if self.start is None else f"after version {self.start} "
        return (
            f"the changes {after}up to version {self.end}, because version {self.missing} is gone"
        )


@dataclass(frozen=True, slots=True)
class ReadableChanges:
    """Changes of a stretch of versions: `runs` can be read, `gaps` cannot. Both in order."""

    runs: tuple[VersionRun, ...]
    gaps: tuple[VersionGap, ...]


def readable_changes(
    history: StateHistory,
    versions: Sequence[int],
    start: int | None,
    end: int,
    *,
    preimages: bool,
) -> ReadableChanges:
    """The changes after version `start` up to `end`, of a history with these `versions`. If `start`
    is None, all rows of the oldest version count as its changes. `preimages`: True if the changes
    must come with preimages. A version that was deleted after the listing counts as gone. Raises
    CorruptObjectError for a damaged version."""
    between = [
        version for version in versions if (start is None or start < version) and version <= end
    ]
    runs: list[VersionRun] = []
    gaps: list[VersionGap] = []
    reached = start
    read = in_parallel(partial(version_at, history), between)
    deleted = {number for number, version in zip(between, read, strict=True) if version is None}
    versions = [number for number in versions if number not in deleted]
    for version in read:
        if version is None:
            continue
        number, base = version.info.version, version.base
        before = _before(versions, number)
        from_nothing = before is None and start is None
        if base is None or from_nothing or (before is not None and base <= before):
            _append(runs, before, version)
        elif preimages or version.shape.needs_state_before:
            gaps.append(VersionGap(reached, number, base))
        else:
            if reached is None or reached < base:
                gaps.append(VersionGap(reached, base, base))
            _append(runs, base, version)
        reached = number
    if end not in versions and (reached is None or reached < end):
        gaps.append(VersionGap(reached, end, end))
    return ReadableChanges(tuple(runs), tuple(gaps))


def nearest_versions(versions: Sequence[int], version: int) -> list[int]:
    """The versions from `version` on, oldest first, then the earlier versions, newest first."""
    index = bisect_left(versions, version)
    return [*versions[index:], *reversed(versions[:index])]


def _before(versions: Sequence[int], version: int) -> int | None:
    index = bisect_left(versions, version)
    return versions[index - 1] if index else None


def _append(runs: list[VersionRun], before: int | None, version: StateVersion) -> None:
    end, size_bytes = version.info.version, sum(file.length for file in version.changes)
    if runs and runs[-1].end == before:
        longer = replace(runs[-1], end=end, size_bytes=runs[-1].size_bytes + size_bytes)
        runs[-1] = longer
    else:
        runs.append(VersionRun(before, end, size_bytes))
