"""Positions of an operator's channels in a stream, and the changes between positions. Pure.

A stream with `at_least_once` passes on the changes of a channel before the epoch is whole. So the
progress of a stream has two parts: the version up to which all key groups are read, and, for each
channel that is ahead, the barrier up to which the channel's key groups are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """Barrier up to which a channel was read. A later attempt or run of the epoch publishes a
    different barrier."""

    subtask: int
    epoch: int
    run: int
    attempt: int
    parallelism: int

    def includes(self, name: BarrierName) -> bool:
        """True if the barrier `name` belongs to the channel, and is not after the position."""
        channel = (name.subtask, name.parallelism, name.directory.run_number)
        epoch = name.directory.epoch
        if channel != (self.subtask, self.parallelism, self.run):
            return False
        return epoch < self.epoch or (epoch, name.attempt) == (self.epoch, self.attempt)


Positions = Mapping[int, ChannelPosition]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Key groups whose changes are read: the changes after version `start` (None: after an empty
    state), up to version `end`. `channel`: the subtask whose barrier ends the stretch, because the
    subtask is ahead of the others; None if a version of all key groups ends the stretch."""

    key_groups: KeyGroupRange
    start: int | None
    end: int
    channel: int | None = None


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Progress of a stream. All channels are read up to `version` (None: nothing). The channels in
    `ahead`, by subtask, are read further."""

    version: int | None
    ahead: Positions

    def ranges(
        self, max_parallelism: int
    ) -> Iterator[tuple[KeyGroupRange, ChannelPosition | None]]:
        """Yield ranges that together cover all key groups, each with the position of its channel;
        None if the channel is not ahead."""
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
    """Encode the positions as JSON values for an offset: by subtask, in order."""
    channels = {}
    for subtask in sorted(positions):
        channels[str(subtask)] = asdict(positions[subtask])
        del channels[str(subtask)]["subtask"]
    return channels


def decode_positions(channels: Mapping[str, Any]) -> Positions:
    return {
        int(subtask): ChannelPosition(int(subtask), **fields)
        for subtask, fields in channels.items()
    }


def still_counts(
    position: ChannelPosition,
    end: StreamProgress,
    checkpoint_at: Callable[[int], CompletedCheckpoint | None],
) -> bool:
    """True if the changes that were read up to `position` are part of the changes up to `end`. If
    not, the epoch was run again, and the channel's changes come again. `checkpoint_at` returns the
    completed checkpoint of a version, or None if the version does not exist."""
    later = end.ahead.get(position.subtask)
    if end.version is None or position.epoch > end.version:
        return later is not None and _leads_to(position, later)
    whole = checkpoint_at(position.epoch)
    return whole is not None and holds(whole, position)


def holds(whole: CompletedCheckpoint, position: ChannelPosition) -> bool:
    """True if the barrier at the position is among the barriers of the whole epoch."""
    if whole.parallelism != position.parallelism:
        return False
    barrier = whole.barriers[position.subtask]
    return (barrier.run.number, barrier.attempt) == (position.run, position.attempt)


def was_begun_again(position: ChannelPosition, timeline: Iterable[EpochDirectory]) -> bool:
    """True if a later run on the live timeline has begun the position's epoch, or an earlier
    epoch. Then the channel delivers the epoch again. `timeline`: see RunLineage.epochs."""
    return any(
        directory.run_number > position.run and directory.epoch <= position.epoch
        for directory in timeline
    )


def stretches(start: StreamProgress, end: StreamProgress, max_parallelism: int) -> list[Stretch]:
    """The stretches to read from `start` to `end`. Every position in `start.ahead` must still
    count, see still_counts."""
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
