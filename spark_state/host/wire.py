"""The conversation between a task and a state host, over a private Unix socket.

    task                                host
    EpochRequest, has input?      ->
                                  <-    Accepted, or Failed
    Arrow stream of the input     ->    (only when it has input)
    EndOfInput(rows)              ->
                                  <-    Durable(rows, has output?), or Failed
                                  <-    Arrow stream of the output
                                  <-    EndOfOutput(rows)

A message is 8 bytes of length, big endian, and a pickle; both ends are the same user's processes
and the same installation, behind a directory that only this user can enter. An Arrow stream is not
wrapped. EndOfInput closes the input on purpose: a stream that merely stops, because the task was
killed, looks complete to Arrow, and must never become a durable epoch.
"""

from __future__ import annotations

import pickle
import struct
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
from pyspark import cloudpickle

from spark_state.errors import StateHostError

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The host takes the request: send the input."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The input is complete and had this many rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class Durable:
    """The epoch is durable and its barrier published (I3); this many output rows follow."""

    rows: int


@dataclass(frozen=True, slots=True)
class EndOfOutput:
    """The output is complete and had this many rows."""

    rows: int


class HostTraceback(Exception):
    """Carries the text of a traceback of the host as the cause of the error it raised there."""

    def __str__(self) -> str:
        return f"\n\nIn the state host:\n{self.args[0]}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed, and nothing of it is kept.

    `pickled_error`: the exception, None if it cannot be pickled; `traceback`: its text.
    """

    pickled_error: bytes | None
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        text = "".join(traceback.format_exception(error))
        try:
            pickled = cloudpickle.dumps(error)
            pickle.loads(pickled)
        except Exception:  # an exception may refuse pickling in any way; its traceback remains
            return cls(None, text)
        return cls(pickled, text)

    def reraise(self) -> NoReturn:
        """Raise the host's exception here, with its traceback there as the cause."""
        cause = HostTraceback(self.traceback)
        if self.pickled_error is not None:
            raise pickle.loads(self.pickled_error) from cause
        last_line = self.traceback.strip().splitlines()[-1]
        raise StateHostError(f"the processor failed with {last_line}") from cause


def send(stream: BinaryIO, message: object) -> None:
    """Write one message and flush."""
    body = cloudpickle.dumps(message)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message. Raises EOFError when the other end is gone."""
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return pickle.loads(_read_exactly(stream, length))


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if data is None or len(data) < length:
        raise EOFError("the other end closed the connection")
    return data


def send_batches(stream: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches as one Arrow stream; returns how many rows."""
    rows = 0
    with pa.ipc.new_stream(pa.PythonFile(stream, mode="w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    stream.flush()
    return rows


def receive_batches(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The batches of one Arrow stream."""
    yield from pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))
