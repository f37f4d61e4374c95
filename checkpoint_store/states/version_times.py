"""Finds the version for a time. Times grow with the versions.

The commit time of a damaged or lost version is unknown, but later than the time of the preceding
version. A time at which such a version may have been the newest is an error; every other time is
answered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from checkpoint_store.errors import CorruptObjectError, TimestampOutOfRangeError
from checkpoint_store.states.state_history import StateHistory, lost_version

_BEFORE_ALL = float("-inf")


class VersionTimes:
    """Finds versions by their commit times, in ms since 1970. `versions`: the numbers of one or
    more versions, oldest first. The methods raise the errors of `StateHistory.at`."""

    def __init__(self, history: StateHistory, versions: Sequence[int]) -> None:
        self._history = history
        self._versions = versions

    def newest_at(self, timestamp_ms: int) -> int:
        """Return the version that was the newest at a time.

        Raises TimestampOutOfRangeError for a time before the oldest version, or after the newest
        version: a version that is still to come may be the answer. Raises VersionMissingError if
        the answer may be a lost version.
        """
        place = bisect_right(self._places, float(timestamp_ms), key=self._time_up_to) - 1
        if place < 0:
            raise self._out_of_range(timestamp_ms)
        version, later = self._versions[place], self._versions[place + 1 :][:1]
        if timestamp_ms > self._history.at(version).info.timestamp_ms:
            if not later:
                raise self._out_of_range(timestamp_ms)
            self._check_nothing_lost(version, later)
        return version

    def first_since(self, timestamp_ms: int) -> int | None:
        """The first version committed at a time or later; None if there is no such version yet."""
        place = bisect_left(self._places, float(timestamp_ms), key=self._time_up_to)
        later = self._versions[place:][:1]
        if place and not (later and self._time_up_to(place) == timestamp_ms):
            # A damaged or lost version may be the first.
            before = self._history.at(self._versions[place - 1])
            self._check_nothing_lost(before.info.version, later)
        return later[0] if later else None

    @property
    def _places(self) -> range:
        return range(len(self._versions))

    def _time_up_to(self, place: int) -> float:
        """The commit time of the version at a place; for a damaged version, the earliest possible
        time."""
        for version in reversed(self._versions[: place + 1]):
            try:
                time_ms = self._history.at(version).info.timestamp_ms
            except CorruptObjectError:
                continue
            return time_ms if version == self._versions[place] else time_ms + 1
        return _BEFORE_ALL

    def _check_nothing_lost(self, version: int, later: Sequence[int]) -> None:
        lost = lost_version(version, map(self._history.at, later), self._versions)
        if lost is not None:
            raise self._history.absent(lost, self._versions)

    def _out_of_range(self, timestamp_ms: int) -> TimestampOutOfRangeError:
        times = (self._time_up_to(place) for place in self._places)
        oldest_ms = next(time for time in times if time != _BEFORE_ALL)
        newest_ms = self._time_up_to(self._places[-1])
        return TimestampOutOfRangeError(
            self._history.url, timestamp_ms, int(oldest_ms), int(newest_ms)
        )
