"""Events of a channel: records, a barrier for each epoch, and possibly the end of the channel.

Channels are numbered from 0. The epochs of a channel only grow, and nothing comes after the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChannelRecord(Generic[T]):
    """A record, or several records passed as one; the package does not look into `value`."""

    channel: int
    value: T


@dataclass(frozen=True, slots=True)
class ChannelBarrier:
    """Barrier of `epoch`: earlier records of the channel belong to `epoch` or to earlier epochs."""

    channel: int
    epoch: int


@dataclass(frozen=True, slots=True)
class EndOfChannel:
    """End of a channel: later epochs do not wait for the channel."""

    channel: int


ChannelEvent = ChannelRecord[T] | ChannelBarrier | EndOfChannel
