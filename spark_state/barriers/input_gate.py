"""Gate with several channels in, and one sequence of records and epoch outcomes out.

An event of a blocked channel waits in memory, and the gate handles the event after the channel is
unblocked. When the epoch ends, the waiting events are replayed before any new event, in the order
of arrival. A barrier in the replay may block the channel again. Then the remaining events of the
channel wait until the barrier's epoch ends:

    waiting    record 1, barrier of epoch 6, record 2    of a blocked channel; epoch 5 is aligned
    replaying  record 1 goes out; the barrier of epoch 6 blocks the channel; record 2 waits again

    gate = open_input_gate("exactly_once", 3)
    for output in gate.process(events):
        match output: ChannelRecord, EndOfChannel, EpochAligned or EpochAborted
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Literal, Protocol, TypeVar

from spark_state.barriers.aligned_barrier_handler import AlignedBarrierHandler
from spark_state.barriers.barrier_tracker import BarrierTracker
from spark_state.barriers.channel_event import (
    ChannelBarrier,
    ChannelEvent,
    ChannelRecord,
    EndOfChannel,
)
from spark_state.barriers.epoch_outcome import AlignmentStatistics, EpochOutcome
from spark_state.errors import ConfigurationError, CorruptStreamError

T = TypeVar("T")
CheckpointingMode = Literal["exactly_once", "at_least_once"]
GateOutput = ChannelRecord[T] | EndOfChannel | EpochOutcome


class BarrierHandler(Protocol):
    """Handler that decides, from barriers and ends of channels, when an epoch is aligned.

    The gate passes no event of a blocked or closed channel to the handler. Each barrier that the
    gate passes is newer than the channel's last barrier. The methods return the outcomes of epochs
    in order. Each epoch that has begun ends once, and the numbers of aligned epochs only grow.
    """

    def is_blocked(self, channel: int) -> bool:
        """Return True if the channel's events must wait for the next outcome."""

    def barrier(self, channel: int, epoch: int) -> tuple[EpochOutcome, ...]:
        """Handle the barrier of `epoch` from the channel."""

    def end_of_channel(self, channel: int) -> tuple[EpochOutcome, ...]:
        """Handle the end of the channel."""

    def end_of_input(self) -> tuple[EpochOutcome, ...]:
        """Abort all pending epochs: no barrier follows."""

    def pending(self) -> dict[int, AlignmentStatistics]:
        """Return the epochs that began and have not ended, oldest first."""


class InputGate(Generic[T]):
    """Gate that applies a handler's decisions to the events of the channels."""

    def __init__(self, handler: BarrierHandler) -> None:
        self._handler = handler
        self._newest_barrier: dict[int, int] = {}
        self._ended: set[int] = set()
        self._input_ended = False
        self._waiting: list[ChannelEvent[T]] = []
        self._replaying: deque[ChannelEvent[T]] = deque()
        self._outputs: deque[GateOutput[T]] = deque()

    def process(self, events: Iterable[ChannelEvent[T]]) -> Iterator[GateOutput[T]]:
        """Yield the records and outcomes that follow from the events. `events`: in the order of
        arrival.

        The gate reads `events` only as far as the caller reads the outputs. If the caller stops,
        the next call continues with the outputs not yet returned, so a reader may stop after an
        aligned epoch. Raises CorruptStreamError if a channel's epochs do not grow, or if an event
        follows the end of a channel.
        """
        assert not self._input_ended, "the input has ended"
        arriving = iter(events)
        while True:
            yield from self._replayed()
            event = next(arriving, None)
            if event is None:
                return
            self._check_arrival(event)
            self._handle(event)

    def end_of_input(self) -> Iterator[GateOutput[T]]:
        """Yield all waiting records: no event follows, and no further epoch is aligned."""
        yield from self._replayed()
        self._input_ended = True
        self._end_epochs(self._handler.end_of_input())
        yield from self._replayed()

    def pending(self) -> dict[int, AlignmentStatistics]:
        """Return the epochs that began and have not ended, oldest first, with the channels still
        waited for."""
        return self._handler.pending()

    def _replayed(self) -> Iterator[GateOutput[T]]:
        """Yield the outputs that follow from waiting events alone."""
        while True:
            while self._outputs:
                yield self._outputs.popleft()
            if not self._replaying:
                return
            self._handle(self._replaying.popleft())

    def _check_arrival(self, event: ChannelEvent[T]) -> None:
        channel = event.channel
        if channel in self._ended:
            raise _corrupt(channel, "something came after its end")
        if isinstance(event, EndOfChannel):
            self._ended.add(channel)
        elif isinstance(event, ChannelBarrier):
            newest = self._newest_barrier.get(channel, -1)
            if event.epoch <= newest:
                raise _corrupt(
                    channel, f"the barrier of epoch {event.epoch} came after that of {newest}"
                )
            self._newest_barrier[channel] = event.epoch

    def _handle(self, event: ChannelEvent[T]) -> None:
        if self._handler.is_blocked(event.channel):
            self._waiting.append(event)
        elif isinstance(event, ChannelBarrier):
            if not self._input_ended:
                self._end_epochs(self._handler.barrier(event.channel, event.epoch))
        else:
            if isinstance(event, EndOfChannel):
                self._end_epochs(self._handler.end_of_channel(event.channel))
            self._outputs.append(event)

    def _end_epochs(self, outcomes: Iterable[EpochOutcome]) -> None:
        for outcome in outcomes:
            self._outputs.append(outcome)
            self._replaying.extendleft(reversed(self._waiting))
            self._waiting.clear()


def open_input_gate(mode: CheckpointingMode, channels: int) -> InputGate[T]:
    """Return the gate of a checkpointing mode. Raises ConfigurationError for an unknown mode."""
    if mode == "exactly_once":
        return InputGate(AlignedBarrierHandler(channels))
    if mode == "at_least_once":
        return InputGate(BarrierTracker(channels))
    raise ConfigurationError(
        f"checkpointingMode is {mode!r}; allowed are 'exactly_once' and 'at_least_once'"
    )


def _corrupt(channel: int, problem: str) -> CorruptStreamError:
    return CorruptStreamError(
        f"the stream of channel {channel} is corrupt: {problem}. Two writers deliver as this "
        "channel, or what one wrote was changed: stop the other writer, then read the stream again "
        "from the last epoch that was aligned"
    )
