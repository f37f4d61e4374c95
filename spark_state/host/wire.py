"""The conversation between a task and a state host, over a private Unix socket.

    task                                host
                                  <-    Present
    EpochRequest, has input?      ->
                                  <-    Accepted, or Failed
    Arrow stream of the input     ->    (only when it has input)
    EndOfInput(rows)              ->
                                  <-    Durable(rows, report), or Failed
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
from io import IOBase
from typing import Any, BinaryIO, NoReturn, cast

import pyarrow as pa

from checkpoint_store.operators.epoch_report import EpochReport
from spark_state.errors import StateHostError
from spark_state.host.host_death import HeldMemory
from spark_state.processor.pickles import dumps

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Present:
    """The host runs. The kernel takes a connection for a process that cannot run any more."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The host takes the request: send the input. `held`: what the host has in memory."""

    held: HeldMemory | None = None


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The input is complete and had this many rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class Durable:
    """The epoch is durable and its barrier published (I3); so many output rows follow. `report`:
    what the epoch did, with all its times."""

    rows: int
    report: EpochReport


@dataclass(frozen=True, slots=True)
class EndOfOutput:
    """The output is complete and had this many rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed, and nothing of it is kept.

    `pickled_error`: the exception, None if it cannot be pickled; `traceback`: its text, and without
    the message if the exception has that.
    """

    pickled_error: bytes | None
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        text = "".join(traceback.format_exception(error))
        message = _message_of(error)
        try:
            pickled = dumps(error)
            arrives = _message_of(pickle.loads(pickled))
        except Exception:  # an exception may refuse pickling in any way; its traceback remains
            return cls(None, text)
        # Messages are long, and Spark repeats all that it is told of an error.
        return cls(pickled, text.removesuffix(message) if arrives == message else text)

    def reraise(self) -> NoReturn:
        """Raise the host's exception here, with its traceback there as a note.

        A note, because Spark drops the cause of an error that a worker reports.
        """
        if self.pickled_error is not None:
            error = pickle.loads(self.pickled_error)
        else:
            last_line = self.traceback.strip().splitlines()[-1]
            error = StateHostError(f"the processor failed with {last_line}")
        error.add_note(f"\nIn the state host:\n{self.traceback}")
        raise error from None


def _message_of(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))


def send(stream: BinaryIO, message: object) -> None:
    """Write one message and flush."""
    body = dumps(message)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message. Raises EOFError when the other end is gone."""
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return pickle.loads(_read_exactly(stream, length))


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("the other end closed the connection")
    return data


def send_batches(stream: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches as one Arrow stream; returns how many rows."""
    rows = 0
    with pa.ipc.new_stream(pa.PythonFile(cast(IOBase, stream), mode="w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    stream.flush()
    return rows


def receive_batches(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The batches of one Arrow stream."""
    yield from pa.ipc.open_stream(pa.PythonFile(cast(IOBase, stream), mode="r"))
