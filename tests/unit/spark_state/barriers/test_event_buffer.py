"""Every buffer returns all events once and in order, and leaves nothing open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datasources.streams.file_event_buffer import FileEventBuffer
from spark_state.barriers.event_buffer import EventBuffer, MemoryEventBuffer
from tests.support.operators.channel_scripts import RECORD_BYTES, CountedBuffers, event, events_of

EVENTS = events_of("a1 b1 a|2 a2 b. a3 a4")
Open = Callable[[CountedBuffers], EventBuffer[str]]
BUFFERS: dict[str, Open] = {
    "memory": lambda spills: MemoryEventBuffer(1 << 20, spills),
    "memory and spill": lambda spills: MemoryEventBuffer(2 * RECORD_BYTES, spills),
    "spill only": lambda spills: MemoryEventBuffer(0, spills),
    "a spill itself": lambda spills: spills(),
    "a file": lambda spills: FileEventBuffer(),
    "memory and file": lambda spills: MemoryEventBuffer(2 * RECORD_BYTES, FileEventBuffer),
}


@pytest.fixture(params=list(BUFFERS.values()), ids=list(BUFFERS))
def open_buffer(request: pytest.FixtureRequest) -> Open:
    opened: Open = request.param
    return opened


def test_events_come_back_in_order_and_once(open_buffer: Open) -> None:
    spills = CountedBuffers()
    buffer = open_buffer(spills)
    for record in EVENTS:
        buffer.put(record)
    assert list(buffer.replay()) == EVENTS
    buffer.close()
    assert spills.open == []


def test_an_empty_buffer_replays_nothing(open_buffer: Open) -> None:
    buffer = open_buffer(CountedBuffers())
    assert list(buffer.replay()) == []
    buffer.close()


def test_a_replay_may_be_left(open_buffer: Open) -> None:
    spills = CountedBuffers()
    buffer = open_buffer(spills)
    for record in EVENTS:
        buffer.put(record)
    replay = buffer.replay()
    assert [next(replay), next(replay)] == EVENTS[:2]
    buffer.close()
    buffer.close()
    assert spills.open == []


def test_no_spill_is_opened_up_to_the_bound() -> None:
    spills = CountedBuffers()
    buffer: MemoryEventBuffer[str] = MemoryEventBuffer(2 * RECORD_BYTES, spills)
    for record in EVENTS[:3]:
        buffer.put(record)
    assert spills.opened == 0
    buffer.put(EVENTS[3])
    assert spills.opened == 1
    assert spills.open[0].events == EVENTS[3:4]
    buffer.put(event("a|9"))
    assert spills.opened == 1
    assert spills.open[0].events == [EVENTS[3], event("a|9")]
