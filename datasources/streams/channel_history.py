"""The versions of a state as one channel sees them: whole versions, then the channel's own epochs.

A subtask may publish its barrier before the other subtasks, and the barrier names all files of the
subtask's key groups. So the epoch is readable for these key groups as soon as the barrier is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import BarrierName
from checkpoint_store.errors import ObjectMissingError, VersionNotRetainedError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.operator_history import OperatorHistory, absent_epoch
from checkpoint_store.states.state_history import StateVersion
from datasources.streams.channel_positions import Positions

Ahead = Mapping[int, tuple[BarrierName, int]]


@dataclass(frozen=True)
class ChannelHistory:
    """StateHistory of one subtask's key groups.

    `operator`: the history of the whole operator, which has the versions before the first epoch in
    `ahead`. `ahead`: by epoch, oldest first, the subtask's barrier and the barrier's time of
    publication (ms since 1970). Other subtasks may not have published the epochs in `ahead` yet.
    """

    operator: OperatorHistory
    ahead: Ahead

    @property
    def url(self) -> str:
        return self.operator.url

    @property
    def max_parallelism(self) -> int:
        return self.operator.max_parallelism

    def versions(self) -> list[int]:
        return self.versions_with(self.operator.versions())

    def versions_with(self, whole: Sequence[int]) -> list[int]:
        """The versions of the channel. `whole`: the versions of the operator."""
        return [*(version for version in whole if version < min(self.ahead)), *self.ahead]

    def at(self, version: int) -> StateVersion:
        """The version of this number, see StateHistory. A version in `ahead` has only the subtask's
        key groups. Raises VersionNotRetainedError if the version's barrier was deleted."""
        if version not in self.ahead:
            return self.operator.at(version)
        name, timestamp_ms = self.ahead[version]
        try:
            barrier = self.operator.published.read_barrier(name)
        except ObjectMissingError as error:
            retained = [other for other in self.versions() if other != version]
            raise self.absent(version, retained) from error
        own = CompletedCheckpoint(version, barrier.run, barrier.parallelism, (barrier,))
        return self.operator.version_of(own, timestamp_ms)

    def absent(self, version: int, versions: Sequence[int]) -> VersionNotRetainedError:
        return absent_epoch(self, version, versions)

    def read(self, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        return self.operator.read(handle, key_groups)


def barriers_ahead(operator: OperatorHistory, positions: Positions, after: int) -> dict[int, Ahead]:
    """Find each channel's barriers after epoch `after` up to the channel's position. Returns, by
    subtask, the field `ahead` for a ChannelHistory. A channel is left out if the barrier at its
    position does not exist any more."""
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
