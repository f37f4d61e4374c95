"""Tracking of the barriers of several channels, for mode `at_least_once`.

No channel is ever blocked. So the gate may return records of later epochs before an epoch is
aligned; after a restart from this epoch, these records come a second time.

At most `MAX_PENDING_EPOCHS` epochs are pending at once; a new epoch beyond the limit aborts the
oldest pending epoch. An aligned epoch aborts all older pending epochs. A barrier of an epoch newer
than all epochs so far makes the new epoch pending. Any other barrier is ignored if its epoch is not
pending. The end of a channel aborts every pending epoch for which the channel has sent no barrier;
later epochs do not wait for the channel.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_state.barriers.epoch_outcome import (
    AbortReason,
    AlignmentStatistics,
    EpochAborted,
    EpochAligned,
    EpochOutcome,
    alignment_statistics,
)

MAX_PENDING_EPOCHS = 50


class BarrierTracker:
    """BarrierHandler (see input_gate) of mode `at_least_once`. `channels`: number of channels."""

    def __init__(self, channels: int) -> None:
        assert channels > 0, "no channel"
        self._channels = channels
        self._newest = -1
        self._arrived: dict[int, list[int]] = {}
        self._closed: set[int] = set()

    def is_blocked(self, channel: int) -> bool:
        return False

    def barrier(self, channel: int, epoch: int) -> tuple[EpochOutcome, ...]:
        if epoch > self._newest:
            self._newest = epoch
            self._arrived[epoch] = []
        if epoch not in self._arrived:
            return ()
        arrived = self._arrived[epoch]
        arrived.append(channel)
        if len(self._closed.union(arrived)) == self._channels:
            older = [pending for pending in self._arrived if pending < epoch]
            aligned = EpochAligned(epoch, self._statistics(epoch))
            del self._arrived[epoch]
            return (*self._abort(older, "newer epoch aligned"), aligned)
        surplus = list(self._arrived)[:-MAX_PENDING_EPOCHS]
        return self._abort(surplus, "too many pending epochs")

    def end_of_channel(self, channel: int) -> tuple[EpochOutcome, ...]:
        unfinished = [epoch for epoch, channels in self._arrived.items() if channel not in channels]
        aborted = self._abort(unfinished, "channel ended")
        self._closed.add(channel)
        return aborted

    def end_of_input(self) -> tuple[EpochOutcome, ...]:
        return self._abort(list(self._arrived), "input ended")

    def pending(self) -> dict[int, AlignmentStatistics]:
        return {epoch: self._statistics(epoch) for epoch in self._arrived}

    def _abort(self, epochs: Iterable[int], reason: AbortReason) -> tuple[EpochOutcome, ...]:
        aborted = []
        for epoch in epochs:
            aborted.append(EpochAborted(epoch, reason, self._statistics(epoch)))
            del self._arrived[epoch]
        return tuple(aborted)

    def _statistics(self, epoch: int) -> AlignmentStatistics:
        return alignment_statistics(self._arrived[epoch], self._closed, self._channels)
