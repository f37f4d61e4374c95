"""A FileEventBuffer leaves no file behind. test_event_buffer tests the contract of all buffers."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import psutil
import pytest

from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from datasources.streams.file_event_buffer import FileEventBuffer
from spark_state.barriers.channel_event import ChannelBarrier, ChannelRecord, EndOfChannel
from spark_state.barriers.event_buffer import MemoryEventBuffer
from spark_state.barriers.input_gate import open_input_gate
from tests.support.operators.channel_scripts import RECORD_BYTES, events_of, feed

BARRIER = BarrierName(EpochDirectory(3, 1), 0, 2, 1, "0123456789ab")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def open_files() -> int:
    return psutil.Process().num_fds()


def test_events_of_any_kind_and_size_come_back() -> None:
    events = [
        ChannelRecord(0, BARRIER, 700),
        ChannelBarrier(0, 3),
        ChannelRecord(1, "x" * 100_000, 100_000),
        EndOfChannel(1),
        ChannelRecord(2, None, 0),
    ]
    buffer: FileEventBuffer[object] = FileEventBuffer()
    for event in events:
        buffer.put(event)
    assert list(buffer.replay()) == events
    buffer.close()


def test_the_file_has_no_name_and_is_closed_in_the_middle_of_a_replay(folder: Path) -> None:
    before = open_files()
    buffer: FileEventBuffer[str] = FileEventBuffer()
    for event in events_of("a1 a|1 a2"):
        buffer.put(event)
    assert list(folder.iterdir()) == []
    replay = buffer.replay()
    next(replay)
    assert open_files() == before + 1
    buffer.close()
    buffer.close()
    assert open_files() == before


def test_a_file_that_could_not_take_an_event_is_closed_all_the_same(folder: Path) -> None:
    buffer: FileEventBuffer[object] = FileEventBuffer()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        buffer.put(ChannelRecord(0, lambda: None, 0))
    assert list(buffer.replay()) == []
    buffer.close()


def test_a_gate_spills_what_waits_beyond_its_bound_and_loses_nothing() -> None:
    opened: list[FileEventBuffer[str]] = []

    def open_spill() -> FileEventBuffer[str]:
        opened.append(FileEventBuffer())
        return opened[-1]

    gate = open_input_gate("exactly_once", 2, lambda: MemoryEventBuffer(RECORD_BYTES, open_spill))
    assert feed(gate, "a1 a|1 a2 a3 a4 b1") == "a1 b1"
    assert len(opened) == 1
    assert feed(gate, "b|1") == "(1) a2 a3 a4"
    assert feed(gate, "a|2 a5 a6") == ""
    gate.close()
    assert len(opened) == 2
    for buffer in opened:
        with pytest.raises(ValueError, match="closed file"):
            next(buffer.replay())
