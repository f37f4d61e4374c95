"""The task's side of the conversation with a state host: sends the task's input, yields the
output."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, cast

import pyarrow as pa

from spark_state.errors import StateHostError
from spark_state.host import wire
from spark_state.host.host_death import WatchedHost
from spark_state.subtasks.epoch_request import SentRequest

# A waiting task ends a host that is silent for so long: a call of a processor has kept Python's
# lock all the time.
_SILENT_SECONDS = 300


def run_epoch(
    connection: socket.socket, request: SentRequest, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run an epoch on the host at `connection`; yield the output once the epoch is durable (I3).

    Raises errors of the host unchanged, with the host's traceback as a note. Raises errors of
    `batches` unchanged. Raises StateHostError if the host dies or does not answer.
    """
    with connection, connection.makefile("rwb") as file:
        stream = cast(BinaryIO, file)
        batches = _marked(batches)
        watched = WatchedHost.at(connection)
        try:
            first = next(batches, None)
            connection.settimeout(_SILENT_SECONDS)
            _expect(stream, wire.Present)
            connection.settimeout(None)
            wire.send(stream, (request, first is not None))
            _expect(stream, wire.Accepted)
            if first is not None:
                wire.send_batches(stream, first.schema, chain((first,), batches))
            wire.send(stream, wire.EndOfInput())
            _expect(stream, wire.Durable)
            yield from wire.receive_batches(stream)
            _expect(stream, wire.EndOfOutput)
        except _HostFailureError as refused:
            refused.failed.reraise()
        except TimeoutError:
            raise _silence(request, watched.end(connection)) from None
        except _InputFailureError as failure:
            raise failure.error from None
        except (EOFError, OSError, pa.ArrowException) as error:
            raise _death(request, watched, error) from error


def _silence(request: SentRequest, has_ended: bool) -> StateHostError:
    end = "It was ended" if has_ended else "End the executor, because nobody knows its process"
    return StateHostError(
        f"the state host of subtask {request.task.subtask} has not answered for "
        f"{_SILENT_SECONDS} s: a processor, in a regular expression or an extension for example, "
        f"keeps Python from running there. {end}; the executor's log says where its threads were. "
        "A retry of the task or a restart of the query restores the state from "
        f"{request.store_url}"
    )


def _death(request: SentRequest, watched: WatchedHost, error: Exception) -> StateHostError:
    task, death = request.task, watched.death()
    return StateHostError(
        f"the state host of subtask {task.subtask} died in epoch {task.epoch} ({death.how()}: "
        f"{error}); a retry of the task or a restart of the query restores its state from "
        f"{request.store_url}. Its last words are in the executor's log."
        f"{death.advice(request.operator.hosts.max_memory_mb)}"
    )


@dataclass(eq=False)
class _HostFailureError(Exception):
    """An error that the host reported, kept apart from errors of the conversation with the host."""

    failed: wire.Failed


@dataclass(eq=False)
class _InputFailureError(Exception):
    """An error of the task's own input, kept apart from errors of the conversation."""

    error: Exception


def _marked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        raise _InputFailureError(error) from error


def _expect(stream: BinaryIO, kind: type) -> Any:
    message = wire.receive(stream)
    if isinstance(message, wire.Failed):
        raise _HostFailureError(message)
    assert isinstance(message, kind), message
    return message
