"""Groups of subtasks whose barriers are completed together. Pure.

With few subtasks, the subtask that publishes the last barrier of an epoch reads all barriers. With
very many subtasks, each subtask looks only at the barriers of its group. The last subtask of a
group completes the group, and the last group completes the epoch. So a subtask lists a bounded
number of names, and no subtask reads all barriers.

The name of a barrier has five digits for the subtask. Subtasks whose numbers begin with the same
digits form a group, because an object store lists names by prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

_DIGITS_OF_SUBTASK = 5


@dataclass(frozen=True, slots=True)
class SubtaskGroup:
    """The subtasks from `first` to `last`, both included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SubtaskGroups:
    """The division of subtasks into groups. `digits`: how many final digits of a subtask's number
    differ within a group."""

    digits: int = 2

    def of(self, parallelism: int) -> list[SubtaskGroup]:
        """The groups of `parallelism` subtasks. Few subtasks are a single group."""
        if not self.are_many(parallelism):
            return [SubtaskGroup(0, parallelism - 1)]
        return [
            SubtaskGroup(first, min(first + self._size, parallelism) - 1)
            for first in range(0, parallelism, self._size)
        ]

    def are_many(self, parallelism: int) -> bool:
        """True if there is more than one group."""
        return parallelism > self._size

    def group_with(self, subtask: int, parallelism: int) -> SubtaskGroup:
        """The group of a subtask."""
        return self.of(parallelism)[subtask // self._size]

    def digits_of(self, group: SubtaskGroup) -> str:
        """The first digits of a subtask's number, which all subtasks of the group share."""
        return digits_of(group.first)[: -self.digits]

    @property
    def _size(self) -> int:
        return int(10**self.digits)


def digits_of(subtask: int) -> str:
    """The number of a subtask, written as in names of objects."""
    return f"{subtask:0{_DIGITS_OF_SUBTASK}d}"


HUNDREDS = SubtaskGroups()
"""The groups of all stores. Tests use other sizes."""
