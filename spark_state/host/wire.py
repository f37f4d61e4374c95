"""The conversation between a task and a state host, over a private Unix socket.

    task                                host
                                  <-    Present
    SentRequest, has input?       ->
                                  <-    Accepted, or Failed
    Arrow stream of the input     ->    (only if the task has input)
    EndOfInput                    ->
                                  <-    Durable, or Failed
                                  <-    Arrow stream of the output
                                  <-    EndOfOutput

A message is 8 bytes of length, big endian, and a pickle. Pickles are safe here: both ends are
processes of the same user and the same installation, and only this user can enter the socket's
directory. An Arrow stream is sent as it is, not in a message. The message EndOfInput is needed: if
the task dies, Arrow takes the cut-off stream for a complete stream, and such an epoch must not
become durable.
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

from spark_state.errors import StateHostError
from spark_state.processor.pickles import dumps

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Present:
    """First message of a host: the host runs. An open connection does not prove this, because the
    kernel accepts connections even for a process that no longer runs any code."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Answer to a request that the host accepts: the client may send the input."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The input is complete."""


@dataclass(frozen=True, slots=True)
class Durable:
    """The epoch is durable and its barrier published (I3). The output follows."""


@dataclass(frozen=True, slots=True)
class EndOfOutput:
    """The output is complete."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed and changed nothing.

    `pickled_error`: the exception, None if it cannot be pickled; `traceback`: text of the
    traceback, without the exception's message if the unpickled exception shows the same message.
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
        # Without the message, because messages are long and Spark repeats all text of an error.
        return cls(pickled, text.removesuffix(message) if arrives == message else text)

    def reraise(self) -> NoReturn:
        """Raise the host's exception in this process, with the host's traceback as a note. The
        traceback is a note and not a cause, because Spark drops the cause of a worker's error."""
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
    """Write a message to the stream and flush the stream."""
    body = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read a message. Raises EOFError if the other process has closed the connection."""
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return pickle.loads(_read_exactly(stream, length))


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("the other end closed the connection")
    return data


def send_batches(stream: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches as an Arrow stream."""
    with pa.ipc.new_stream(pa.PythonFile(cast(IOBase, stream), mode="w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream.flush()


def receive_batches(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow stream."""
    yield from pa.ipc.open_stream(pa.PythonFile(cast(IOBase, stream), mode="r"))
