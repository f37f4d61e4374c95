"""Alignment of the barriers of several channels, for mode `exactly_once`.

One epoch is aligned at a time. A channel is blocked after its barrier: the next records belong to a
later epoch and must wait. The outcome of the epoch unblocks all channels. One exception: if a newer
barrier ended the epoch, the channel of the newer barrier is blocked.

    barrier of the current epoch          block the channel; the last barrier aligns the epoch
    barrier of a newer epoch              abort the current epoch, begin the newer epoch
    barrier of an older or ended epoch    ignore the barrier
    end of a channel                      count the channel as closed; abort the current epoch

A barrier of a newer epoch aborts the current epoch, because the channel will send no more barrier
of the current epoch.
"""

from __future__ import annotations

from spark_state.barriers.epoch_outcome import (
    AbortReason,
    AlignmentStatistics,
    EpochAborted,
    EpochAligned,
    EpochOutcome,
    alignment_statistics,
)


class AlignedBarrierHandler:
    """BarrierHandler (see input_gate) of mode `exactly_once`. `channels`: number of channels."""

    def __init__(self, channels: int) -> None:
        assert channels > 0, "no channel"
        self._channels = channels
        self._epoch = -1
        self._arrived: dict[int, None] = {}
        self._closed: set[int] = set()

    def is_blocked(self, channel: int) -> bool:
        return channel in self._arrived

    def barrier(self, channel: int, epoch: int) -> tuple[EpochOutcome, ...]:
        assert channel not in self._arrived, f"channel {channel} is blocked"
        aligning = bool(self._arrived)
        if epoch < self._epoch or (epoch == self._epoch and not aligning):
            return ()
        outcomes: list[EpochOutcome] = []
        if epoch > self._epoch:
            outcomes += self._abort("newer barrier")
            self._epoch = epoch
        self._arrived[channel] = None
        if len(self._arrived) + len(self._closed) == self._channels:
            outcomes.append(EpochAligned(epoch, self._statistics()))
            self._arrived.clear()
        return tuple(outcomes)

    def end_of_channel(self, channel: int) -> tuple[EpochOutcome, ...]:
        assert channel not in self._arrived, f"channel {channel} is blocked"
        aborted = self._abort("channel ended")
        self._closed.add(channel)
        return aborted

    def end_of_input(self) -> tuple[EpochOutcome, ...]:
        return self._abort("input ended")

    def pending(self) -> dict[int, AlignmentStatistics]:
        return {self._epoch: self._statistics()} if self._arrived else {}

    def _abort(self, reason: AbortReason) -> tuple[EpochOutcome, ...]:
        if not self._arrived:
            return ()
        aborted = EpochAborted(self._epoch, reason, self._statistics())
        self._arrived.clear()
        return (aborted,)

    def _statistics(self) -> AlignmentStatistics:
        return alignment_statistics(self._arrived, self._closed, self._channels)
