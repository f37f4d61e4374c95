"""Holds waiting events in a temporary file, for a MemoryEventBuffer that is full.

    (length, 4 bytes, big endian | pickled event)*

The file has no name, so the system deletes the file when the buffer is closed or the process is
killed. Only one process reads and writes the file, so pickles are safe.
"""

from __future__ import annotations

import pickle
import struct
import tempfile
from collections.abc import Iterator
from typing import Generic, TypeVar

from spark_state.barriers.channel_event import ChannelEvent

T = TypeVar("T")
_LENGTH = struct.Struct(">I")


class FileEventBuffer(Generic[T]):
    """EventBuffer that pickles values; see spark_state.barriers.event_buffer."""

    def __init__(self) -> None:
        # Closed by `close`, not at the end of a block.
        self._file = tempfile.TemporaryFile(prefix="cowstate-")  # noqa: SIM115

    def put(self, event: ChannelEvent[T]) -> None:
        data = pickle.dumps(event)
        self._file.write(_LENGTH.pack(len(data)))
        self._file.write(data)

    def replay(self) -> Iterator[ChannelEvent[T]]:
        self._file.seek(0)
        while length := self._file.read(_LENGTH.size):
            event: ChannelEvent[T] = pickle.loads(self._file.read(*_LENGTH.unpack(length)))
            yield event

    def close(self) -> None:
        self._file.close()
