"""Groups of subtasks whose barriers are completed together. Pure.

With few subtasks, whoever publishes the last barrier of an epoch reads all of them. With very many,
each subtask looks only at the barriers of its group, the last one of a group completes the group,
and the last group completes the epoch. So a subtask lists a bounded number of names, and nobody
reads the barriers of all.

Names of barriers have five digits for the subtask. Those that begin with the same digits are a
group, because an object store lists names by what they begin with.
"""

from __future__ import annotations

from dataclasses import dataclass

_DIGITS_OF_SUBTASK = 5


@dataclass(frozen=True, slots=True)
class SubtaskGroup:
    """The subtasks from `first` to `last`."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, subtask: int) -> bool:
        return self.first <= subtask <= self.last


@dataclass(frozen=True, slots=True)
class SubtaskGroups:
    """`digits`: how many digits at the end tell the subtasks of a group apart."""

    digits: int = 2

    def of(self, parallelism: int) -> list[SubtaskGroup]:
        """The groups of so many subtasks; one if they are few, see `are_many`."""
        if not self.are_many(parallelism):
            return [SubtaskGroup(0, parallelism - 1)]
        return [
            SubtaskGroup(first, min(first + self._size, parallelism) - 1)
            for first in range(0, parallelism, self._size)
        ]

    def are_many(self, parallelism: int) -> bool:
        """Whether there is more than one group."""
        return parallelism > self._size

    def group_with(self, subtask: int, parallelism: int) -> SubtaskGroup:
        """The group of a subtask."""
        return self.of(parallelism)[subtask // self._size]

    def digits_of(self, group: SubtaskGroup) -> str:
        """What the numbers of the group's subtasks begin with, where there are many groups."""
        return f"{group.first:0{_DIGITS_OF_SUBTASK}d}"[: -self.digits]

    @property
    def _size(self) -> int:
        return int(10**self.digits)


HUNDREDS = SubtaskGroups()
"""The groups of all stores; others are for tests."""
