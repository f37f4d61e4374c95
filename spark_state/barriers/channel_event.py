"""Events of a channel: records, a barrier for each epoch, and possibly the end of the channel.

Channels are numbered from 0. The epochs of a channel only grow, and nothing comes after the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChannelRecord(Generic[T]):
    """A record, or several records passed as one; the package does not look into `value`.
    `size_bytes`: memory that the record takes while waiting, as estimated by the caller."""

    channel: int
    value: T
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ChannelBarrier:
    """Barrier of `epoch`: earlier records of the channel belong to `epoch` or to earlier epochs."""

    channel: int
    epoch: int
    size_bytes: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class EndOfChannel:
    """End of a channel: later epochs do not wait for the channel."""

    channel: int
    size_bytes: ClassVar[int] = 0


ChannelEvent = ChannelRecord[T] | ChannelBarrier | EndOfChannel
