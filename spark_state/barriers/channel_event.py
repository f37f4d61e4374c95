"""What a channel delivers: records, a barrier per epoch, and at last its end, maybe.

Channels are numbered from 0. A channel's epochs only grow, and nothing comes after its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChannelRecord(Generic[T]):
    """A record, or several as one: nothing here looks into `value`.

    `size_bytes`: what it takes up while it waits, as whoever made it estimates.
    """

    channel: int
    value: T
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ChannelBarrier:
    """What the channel delivered before belongs to `epoch` and those before it."""

    channel: int
    epoch: int
    size_bytes: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class EndOfChannel:
    """The channel is closed; later epochs do not wait for it."""

    channel: int
    size_bytes: ClassVar[int] = 0


ChannelEvent = ChannelRecord[T] | ChannelBarrier | EndOfChannel
