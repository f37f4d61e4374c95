"""Barrier alignment follows its definition for any interleaving of any channels.

A channel's barrier of epoch n divides the channel's records into records before and after. When
epoch n is aligned, exactly the records before the barrier are out (at least once: at least the
records before the barrier). A channel without a barrier of n has ended, and all its records are
out. Other epochs may be aligned or not, depending on the interleaving. An epoch with a barrier in
every channel is always aligned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_state.barriers.channel_event import (
    ChannelBarrier,
    ChannelEvent,
    ChannelRecord,
    EndOfChannel,
)
from spark_state.barriers.epoch_outcome import EpochAborted
from spark_state.barriers.input_gate import (
    CheckpointingMode,
    GateOutput,
    InputGate,
    open_input_gate,
)
from tests.support.examples import examples

Channel = list[ChannelEvent[str]]
MODES: list[CheckpointingMode] = ["exactly_once", "at_least_once"]
EXAMPLES = examples(170)


@st.composite
def channels(draw: st.DrawFn) -> list[Channel]:
    """Draw two to five channels of up to eight epochs; some channels skip an epoch or end early."""
    epochs = draw(st.integers(0, 8))
    skipping = draw(st.booleans())
    streams: list[Channel] = []
    for channel in range(draw(st.integers(2, 5))):
        last = draw(st.integers(0, epochs)) if skipping else epochs
        delivered = [e for e in range(last) if not skipping or draw(st.integers(0, 3))]
        stream: Channel = []
        for epoch in [*delivered, None]:
            for _ in range(draw(st.integers(0, 3))):
                name = f"record {len(stream)} of channel {channel}"
                stream.append(ChannelRecord(channel, name))
            if epoch is not None:
                stream.append(ChannelBarrier(channel, epoch))
        streams.append([*stream, EndOfChannel(channel)])
    return streams


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[Channel], list[ChannelEvent[str]]]:
    """Draw channels, and an order of arrival for their events."""
    streams = draw(channels())
    turns = [channel for channel, stream in enumerate(streams) for _ in stream]
    iterators = [iter(stream) for stream in streams]
    return streams, [next(iterators[channel]) for channel in draw(st.permutations(turns))]


def epochs_of(stream: Channel) -> set[int]:
    return {event.epoch for event in stream if isinstance(event, ChannelBarrier)}


def records_until(stream: Channel, epoch: int | None) -> list[str]:
    """The records before the barrier of `epoch`; all records if the channel has no such barrier."""
    records = []
    for event in stream:
        if isinstance(event, ChannelRecord):
            records.append(event.value)
        elif isinstance(event, ChannelBarrier) and event.epoch == epoch:
            break
    return records


class Observed:
    """The released events in order, and the released records by channel, so far and at the moment
    of each aligned epoch."""

    def __init__(self) -> None:
        self.released: Channel = []
        self.records: dict[int, list[str]] = defaultdict(list)
        self.ended: list[int] = []
        self.aligned: dict[int, dict[int, list[str]]] = {}
        self.aborted: list[int] = []

    def add(self, output: GateOutput[str]) -> None:
        if isinstance(output, ChannelRecord | EndOfChannel):
            self.released.append(output)
        if isinstance(output, ChannelRecord):
            assert output.channel not in self.ended
            self.records[output.channel].append(output.value)
        elif isinstance(output, EndOfChannel):
            self.ended.append(output.channel)
        elif isinstance(output, EpochAborted):
            self.aborted.append(output.epoch)
        else:
            assert output.epoch not in self.aligned
            self.aligned[output.epoch] = {c: list(r) for c, r in self.records.items()}

    def check_complete(self, streams: Sequence[Channel]) -> None:
        """Assert that every record came out once, in its channel's order, and every epoch ended
        once."""
        for channel, stream in enumerate(streams):
            assert self.records[channel] == records_until(stream, None)
        assert sorted(self.ended) == [*range(len(streams))]
        assert list(self.aligned) == sorted(self.aligned)
        assert max(Counter([*self.aborted, *self.aligned]).values(), default=1) == 1
        of_all = set.intersection(*map(epochs_of, streams))
        assert of_all <= self.aligned.keys()


def run(
    mode: CheckpointingMode, streams: Sequence[Channel], events: Sequence[ChannelEvent[str]]
) -> Observed:
    gate: InputGate[str] = open_input_gate(mode, len(streams))
    observed = Observed()
    for output in gate.process(events):
        observed.add(output)
    assert gate.pending() == {}
    observed.check_complete(streams)
    return observed


@EXAMPLES
@given(interleaved())
def test_exactly_once_every_aligned_epoch_is_a_cut_through_all_channels(
    case: tuple[list[Channel], list[ChannelEvent[str]]],
) -> None:
    streams, events = case
    for epoch, records in run("exactly_once", streams, events).aligned.items():
        for channel, stream in enumerate(streams):
            assert records.get(channel, []) == records_until(stream, epoch)


@EXAMPLES
@given(interleaved())
def test_at_least_once_records_pass_at_once_and_an_aligned_epoch_misses_none(
    case: tuple[list[Channel], list[ChannelEvent[str]]],
) -> None:
    streams, events = case
    observed = run("at_least_once", streams, events)
    assert observed.released == [e for e in events if not isinstance(e, ChannelBarrier)]
    for epoch, records in observed.aligned.items():
        for channel, stream in enumerate(streams):
            before = records_until(stream, epoch)
            assert records.get(channel, [])[: len(before)] == before


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_that_stops_anywhere_and_goes_on_sees_the_same(
    mode: CheckpointingMode,
) -> None:
    @EXAMPLES
    @given(interleaved(), st.integers(0, 1 << 30))
    def check(case: tuple[list[Channel], list[ChannelEvent[str]]], cut: int) -> None:
        streams, events = case
        gate: InputGate[str] = open_input_gate(mode, len(streams))
        whole = list(open_input_gate(mode, len(streams)).process(events))
        arriving = iter(events)
        first = []
        for output in gate.process(arriving):
            first.append(output)
            if len(first) > cut % (len(whole) + 1):
                break
        assert [*first, *gate.process(arriving)] == whole

    check()


@EXAMPLES
@given(interleaved(), st.data())
def test_at_the_end_of_input_nothing_that_waited_is_lost(
    case: tuple[list[Channel], list[ChannelEvent[str]]], data: st.DataObject
) -> None:
    streams, events = case
    arrived = events[: data.draw(st.integers(0, len(events)))]
    gate: InputGate[str] = open_input_gate("exactly_once", len(streams))
    outputs = [*gate.process(arrived), *gate.end_of_input()]
    for channel in range(len(streams)):
        mine = [e for e in arrived if e.channel == channel and not isinstance(e, ChannelBarrier)]
        kept = [o for o in outputs if isinstance(o, ChannelRecord | EndOfChannel)]
        assert [o for o in kept if o.channel == channel] == mine
    assert gate.pending() == {}
