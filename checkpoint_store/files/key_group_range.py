"""Key groups, and the contiguous ranges of key groups that subtasks own.

A key group is the smallest unit of state that moves between subtasks. With m key groups (m is the
max parallelism) and p subtasks, subtask i owns

    [ceil(i * m / p), ceil((i + 1) * m / p) - 1]

So the ranges of all subtasks partition [0, m - 1] for every p, and a restore at another parallelism
reads whole contiguous ranges of the old files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups start..end, both inclusive; never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"key-group range [{self.start}, {self.end}] needs 0 <= start <= end")

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group <= self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange | None:
        """Return the key groups in both ranges; None if there are none."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return KeyGroupRange(start, end) if start <= end else None

    def without(self, other: KeyGroupRange) -> tuple[KeyGroupRange, ...]:
        """Return the key groups in this range only: no range, one range or two ranges,
        ascending."""
        before = (self.start, min(self.end, other.start - 1))
        after = (max(self.start, other.end + 1), self.end)
        return tuple(KeyGroupRange(start, end) for start, end in (before, after) if start <= end)


def key_group_range_of_subtask(
    max_parallelism: int, parallelism: int, subtask: int
) -> KeyGroupRange:
    """Return the key groups that a subtask owns at a parallelism."""
    start = _ceil_div(subtask * max_parallelism, parallelism)
    end = _ceil_div((subtask + 1) * max_parallelism, parallelism) - 1
    return KeyGroupRange(start, end)


def subtask_of_key_group(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns `key_group`."""
    return key_group * parallelism // max_parallelism


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
