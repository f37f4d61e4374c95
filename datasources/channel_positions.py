"""How far each channel of an operator was read, and what lies between two such states. Pure.

A stream of `at_least_once` hands on what a channel delivered before the epoch is whole, so how far
it is differs by key group: some are of a channel that is ahead, all others are at a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.operators.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.operators.operator_layout import BarrierName, EpochDirectory


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """The barrier up to which a channel was read. An epoch that is run again by a later attempt,
    or in a later run, has another one."""

    subtask: int
    epoch: int
    run: int
    attempt: int
    parallelism: int

    def includes(self, name: BarrierName) -> bool:
        """Whether this barrier is the channel's, and not one after the position."""
        channel = (name.subtask, name.parallelism, name.directory.run_number)
        place = (name.directory.epoch, name.attempt)
        if channel != (self.subtask, self.parallelism, self.run):
            return False
        return place[0] < self.epoch or place == (self.epoch, self.attempt)


Positions = Mapping[int, ChannelPosition]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Key groups that are read from version `start` (None: from nothing) to version `end`.
    `channel`: the subtask that is ahead at `end`, None if `end` is whole."""

    key_groups: KeyGroupRange
    start: int | None
    end: int
    channel: int | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """How far all was read: `version` by all channels (None: nothing), the channels in `ahead`, by
    subtask, further."""

    version: int | None
    ahead: Positions

    def ranges(
        self, max_parallelism: int
    ) -> Iterator[tuple[KeyGroupRange, ChannelPosition | None]]:
        """All key groups, each with the channel if it is ahead."""
        parallelism = next((position.parallelism for position in self.ahead.values()), 1)
        for subtask in range(parallelism):
            own = key_group_range_of_subtask(max_parallelism, parallelism, subtask)
            yield own, self.ahead.get(subtask)


def position_of(name: BarrierName) -> ChannelPosition:
    """The position of a channel that was read up to this barrier."""
    directory = name.directory
    return ChannelPosition(
        name.subtask, directory.epoch, directory.run_number, name.attempt, name.parallelism
    )


def encode_positions(positions: Positions) -> dict[str, Any]:
    """As JSON has it in an offset: by subtask, in order."""
    channels = {}
    for subtask in sorted(positions):
        channels[str(subtask)] = asdict(positions[subtask])
        del channels[str(subtask)]["subtask"]
    return channels


def decode_positions(channels: Mapping[str, Any]) -> Positions:
    """What `encode_positions` made."""
    return {
        int(subtask): ChannelPosition(int(subtask), **fields)
        for subtask, fields in channels.items()
    }


def still_counts(
    position: ChannelPosition,
    end: Reached,
    checkpoint_at: Callable[[int], CompletedCheckpoint | None],
) -> bool:
    """Whether what was read up to `position` is part of what is read up to `end`.

    If not, the epoch was run again since, and the channel's changes come again. `checkpoint_at`
    gives a version's barriers, None if it is not there.
    """
    later = end.ahead.get(position.subtask)
    if end.version is None or position.epoch > end.version:
        return later is not None and _leads_to(position, later)
    whole = checkpoint_at(position.epoch)
    return whole is not None and holds(whole, position)


def holds(whole: CompletedCheckpoint, position: ChannelPosition) -> bool:
    """Whether the barriers of the position's epoch have the one at the position."""
    if whole.parallelism != position.parallelism:
        return False
    barrier = whole.barriers[position.subtask]
    return (barrier.run.number, barrier.attempt) == (position.run, position.attempt)


def was_begun_again(position: ChannelPosition, directories: Iterable[EpochDirectory]) -> bool:
    """Whether a later run has begun with the position's epoch, or with one before it: then the
    channel delivers the epoch again. `directories`: what runs wrote in epochs."""
    return any(
        directory.run_number > position.run and directory.epoch <= position.epoch
        for directory in directories
    )


def stretches(start: Reached, end: Reached, max_parallelism: int) -> list[Stretch]:
    """What to read so that all that was at `start` is at `end`. All of `start.ahead` counts."""
    common: list[Stretch] = []
    for mine, before in start.ranges(max_parallelism):
        for other, after in end.ranges(max_parallelism):
            key_groups = mine.intersection(other)
            first = start.version if before is None else before.epoch
            last = end.version if after is None else after.epoch
            if key_groups and last is not None and (first is None or first < last):
                channel = None if after is None else after.subtask
                common.append(Stretch(key_groups, first, last, channel))
    return common


def _leads_to(position: ChannelPosition, later: ChannelPosition) -> bool:
    if (position.run, position.parallelism) != (later.run, later.parallelism):
        return False
    return position == later or position.epoch < later.epoch
