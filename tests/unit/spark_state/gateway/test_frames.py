"""Frames have the documented bytes, and other bytes are refused."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_state.gateway.frames import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    Frame,
    read_frame,
    write_frame,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FRAMES = st.builds(Frame, st.dictionaries(st.text(), JSON, max_size=4), st.binary(max_size=200))


def written(*frames: Frame) -> bytes:
    stream = io.BytesIO()
    for frame in frames:
        write_frame(stream, frame)
    return stream.getvalue()


def test_a_frame_has_the_bytes_that_are_drawn() -> None:
    header = b'{"do": "list"}'
    assert written(Frame({"do": "list"}, b"body")) == (
        struct.pack(">I", len(header)) + header + struct.pack(">Q", 4) + b"body"
    )


@given(st.lists(FRAMES, max_size=4))
def test_frames_come_out_as_they_went_in(frames: list[Frame]) -> None:
    stream = io.BytesIO(written(*frames))
    assert [read_frame(stream) for _ in frames] == frames
    with pytest.raises(EOFError):
        read_frame(stream)


@given(FRAMES, st.data())
def test_a_frame_that_breaks_off_is_the_end(frame: Frame, data: st.DataObject) -> None:
    whole = written(frame)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(whole[:cut]))


@pytest.mark.parametrize("header", ["[]", "3", "{", '"do"'])
def test_a_header_that_is_no_object_is_refused(header: str) -> None:
    data = struct.pack(">I", len(header)) + header.encode() + struct.pack(">Q", 0)
    with pytest.raises(ValueError, match=r"a header that is not|Expecting"):
        read_frame(io.BytesIO(data))


def test_lengths_that_nobody_sends_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="a header of 16777217 bytes"):
        read_frame(io.BytesIO(struct.pack(">I", MAX_HEADER_BYTES + 1)))
    header: Any = json.dumps({}).encode()
    start = struct.pack(">I", len(header)) + header
    with pytest.raises(ValueError, match="a body of 1073741825 bytes"):
        read_frame(io.BytesIO(start + struct.pack(">Q", MAX_BODY_BYTES + 1)))
