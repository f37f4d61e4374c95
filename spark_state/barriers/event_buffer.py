"""Buffer for events of channels that are ahead of the current epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from spark_state.barriers.channel_event import ChannelEvent

T = TypeVar("T")


class EventBuffer(Protocol[T]):
    """Buffer of events in the order of `put`. First all events are put, then replayed once."""

    def put(self, event: ChannelEvent[T]) -> None:
        """Keep an event. Not called after `replay`."""

    def replay(self) -> Iterator[ChannelEvent[T]]:
        """Yield the events, one at a time. The caller may stop before the last event."""

    def close(self) -> None:
        """Drop the remaining events and release the resources. Safe to call again."""


class MemoryEventBuffer(Generic[T]):
    """Buffer that holds up to `bound_bytes` of events in memory, measured by `size_bytes`, and all
    other events in a spill. `open_spill()`: opens the spill at the first event beyond the bound.
    From then on all events go to the spill, which keeps the order."""

    def __init__(self, bound_bytes: int, open_spill: Callable[[], EventBuffer[T]]) -> None:
        self._room_bytes = bound_bytes
        self._open_spill = open_spill
        self._events: deque[ChannelEvent[T]] = deque()
        self._spill: EventBuffer[T] | None = None

    def put(self, event: ChannelEvent[T]) -> None:
        if self._spill is None and event.size_bytes <= self._room_bytes:
            self._room_bytes -= event.size_bytes
            self._events.append(event)
            return
        if self._spill is None:
            self._spill = self._open_spill()
        self._spill.put(event)

    def replay(self) -> Iterator[ChannelEvent[T]]:
        while self._events:
            yield self._events.popleft()
        if self._spill is not None:
            yield from self._spill.replay()

    def close(self) -> None:
        self._events.clear()
        if self._spill is not None:
            self._spill.close()
