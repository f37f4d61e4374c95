"""Short words for the events of channels and for the outputs of a gate.

a1     a record of channel a; its value is the word
a|5    the barrier of epoch 5 on channel a
a.     the end of channel a
(5)    output: epoch 5 is aligned
(5-)   output: epoch 5 is aborted
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_state.barriers.channel_event import (
    ChannelBarrier,
    ChannelEvent,
    ChannelRecord,
    EndOfChannel,
)
from spark_state.barriers.epoch_outcome import EpochAligned
from spark_state.barriers.input_gate import GateOutput, InputGate


def event(word: str) -> ChannelEvent[str]:
    channel, rest = ord(word[0]) - ord("a"), word[1:]
    if rest == ".":
        return EndOfChannel(channel)
    if rest.startswith("|"):
        return ChannelBarrier(channel, int(rest[1:]))
    return ChannelRecord(channel, word)


def events_of(words: str) -> list[ChannelEvent[str]]:
    return [event(text) for text in words.split()]


def word(output: GateOutput[str]) -> str:
    if isinstance(output, ChannelRecord):
        return output.value
    if isinstance(output, EndOfChannel):
        return f"{chr(ord('a') + output.channel)}."
    return f"({output.epoch})" if isinstance(output, EpochAligned) else f"({output.epoch}-)"


def feed(gate: InputGate[str], words: str) -> str:
    """The gate's outputs for the events of `words`, as words."""
    return words_of(gate.process(events_of(words)))


def words_of(outputs: Iterable[GateOutput[str]]) -> str:
    return " ".join(map(word, outputs))
