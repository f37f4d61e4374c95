"""A FileEventBuffer leaves no file behind. test_event_buffer tests the contract of all buffers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest

from datasources.streams.file_event_buffer import FileEventBuffer
from spark_state.barriers.channel_event import ChannelRecord
from tests.support.operators.channel_scripts import events_of


def test_the_file_has_no_name_and_is_closed_in_the_middle_of_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_files = psutil.Process().num_fds
    before = open_files()
    buffer: FileEventBuffer[str] = FileEventBuffer()
    large = ChannelRecord(0, "x" * 100_000, 100_000)
    for event in [large, *events_of("a|1 a2")]:
        buffer.put(event)
    assert list(tmp_path.iterdir()) == []
    replay = buffer.replay()
    assert next(replay) == large
    assert open_files() == before + 1
    buffer.close()
    buffer.close()
    assert open_files() == before
