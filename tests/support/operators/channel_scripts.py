"""Events of channels and what a gate makes of them, as short words.

a1     a record of channel a; its value is the word, and it has 10 bytes
a|5    the barrier of epoch 5 on channel a
a.     the end of channel a
(5)    out: epoch 5 is aligned
(5-)   out: epoch 5 is aborted
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_state.barriers.channel_event import (
    ChannelBarrier,
    ChannelEvent,
    ChannelRecord,
    EndOfChannel,
)
from spark_state.barriers.epoch_outcome import EpochAligned
from spark_state.barriers.event_buffer import EventBuffer
from spark_state.barriers.input_gate import GateOutput, InputGate

RECORD_BYTES = 10


def event(word: str) -> ChannelEvent[str]:
    channel, rest = ord(word[0]) - ord("a"), word[1:]
    if rest == ".":
        return EndOfChannel(channel)
    if rest.startswith("|"):
        return ChannelBarrier(channel, int(rest[1:]))
    return ChannelRecord(channel, word, RECORD_BYTES)


def events_of(words: str) -> list[ChannelEvent[str]]:
    return [event(text) for text in words.split()]


def word(output: GateOutput[str]) -> str:
    if isinstance(output, ChannelRecord):
        return output.value
    if isinstance(output, EndOfChannel):
        return f"{chr(ord('a') + output.channel)}."
    return f"({output.epoch})" if isinstance(output, EpochAligned) else f"({output.epoch}-)"


def feed(gate: InputGate[str], words: str) -> str:
    """What a gate lets through for the events of `words`; its invariants hold at each output."""
    return words_of(gate, gate.process(events_of(words)))


def words_of(gate: InputGate[str], outputs: Iterable[GateOutput[str]]) -> str:
    words = []
    for output in outputs:
        gate.check_invariants()
        words.append(word(output))
    gate.check_invariants()
    return " ".join(words)


class CountedBuffers:
    """Buffers of any size, as spills; knows how many are open and what they hold."""

    def __init__(self) -> None:
        self.opened = 0
        self.open: list[ListBuffer] = []

    def __call__(self) -> EventBuffer[str]:
        self.opened += 1
        buffer = ListBuffer(self)
        self.open.append(buffer)
        return buffer

    def size_bytes(self) -> int:
        return sum(buffered.size_bytes for buffer in self.open for buffered in buffer.events)


class ListBuffer:
    """An EventBuffer that gives up an event when it is replayed, as a file does not."""

    def __init__(self, buffers: CountedBuffers) -> None:
        self.events: list[ChannelEvent[str]] = []
        self._buffers = buffers
        self._replayed = False

    def put(self, event: ChannelEvent[str]) -> None:
        assert not self._replayed
        assert self in self._buffers.open
        self.events.append(event)

    def replay(self) -> Iterator[ChannelEvent[str]]:
        assert not self._replayed
        self._replayed = True
        while self.events:
            yield self.events.pop(0)

    def close(self) -> None:
        if self in self._buffers.open:
            self._buffers.open.remove(self)
