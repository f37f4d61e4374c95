"""The versions of a state as one channel has them: the whole ones, and after these its own.

A subtask publishes its barrier before others have, and the barrier names all files of its key
groups. So for these key groups an epoch that is not whole yet is as readable as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.errors import ObjectMissingError, VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.operators.operator_history import OperatorHistory, absent_epoch
from checkpoint_store.operators.operator_layout import BarrierName
from checkpoint_store.states.state_history import StateVersion
from datasources.channel_positions import Positions

Ahead = Mapping[int, tuple[BarrierName, int]]


@dataclass(frozen=True)
class ChannelHistory:
    """The StateHistory of one subtask's key groups.

    `ahead`: the subtask's barriers of epochs that need not be whole, oldest first, with the times
    at which they were published (ms since 1970). Whole versions count up to the first of them.
    """

    operator: OperatorHistory
    ahead: Ahead

    @property
    def url(self) -> str:
        """See StateHistory."""
        return self.operator.url

    @property
    def max_parallelism(self) -> int:
        """See StateHistory."""
        return self.operator.max_parallelism

    def versions(self) -> list[int]:
        """See StateHistory."""
        return self.versions_with(self.operator.versions())

    def versions_with(self, whole: Sequence[int]) -> list[int]:
        """The versions of the channel when these are the operator's."""
        return [*(version for version in whole if version < min(self.ahead)), *self.ahead]

    def at(self, version: int) -> StateVersion:
        """See StateHistory. A version that is not whole has only the subtask's key groups. Raises
        VersionNotRetainedError, too, if the barrier was deleted since."""
        if version not in self.ahead:
            return self.operator.at(version)
        name, timestamp_ms = self.ahead[version]
        try:
            barrier = self.operator.published.read_barrier(name)
        except ObjectMissingError as error:
            there = [other for other in self.versions() if other != version]
            raise self.absent(version, there) from error
        own = CompletedCheckpoint(version, barrier.run, barrier.parallelism, (barrier,))
        return self.operator.version_of(own, timestamp_ms)

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        """See StateHistory."""
        return absent_epoch(self, version, versions)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """See StateHistory."""
        return self.operator.read(handle, key_groups)


def barriers_ahead(operator: OperatorHistory, positions: Positions, after: int) -> dict[int, Ahead]:
    """By subtask, what `ChannelHistory.ahead` is of the channels at these positions: all after
    epoch `after`. A channel whose barrier at its position is not there any more is left out.
    """
    barriers: dict[int, dict[int, tuple[BarrierName, int]]] = {subtask: {} for subtask in positions}
    last = max((position.epoch for position in positions.values()), default=after)
    directories = operator.published.epoch_directories() if positions else []
    for directory in sorted(directories, key=lambda directory: directory.epoch):
        if not after < directory.epoch <= last:
            continue
        times = operator.barrier_times(directory)
        for name in sorted(times, key=str):
            if name.subtask in positions and positions[name.subtask].includes(name):
                barriers[name.subtask][directory.epoch] = (name, times[name])
    return {
        subtask: ahead for subtask, ahead in barriers.items() if positions[subtask].epoch in ahead
    }
