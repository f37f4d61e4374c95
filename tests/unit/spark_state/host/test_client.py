"""A task gets the right error if its host or its own input fails during an epoch."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest

from spark_state.errors import StateHostError
from spark_state.host import wire
from spark_state.host.client import run_epoch
from spark_state.host.server import receive_input
from spark_state.subtasks.received_input import ReceivedInput
from tests.support.operators.subtasks import OUTPUT, Host, operator, table_of

Answer = Callable[[BinaryIO], None]


def converse(tmp_path: Path, batches: Iterator[pa.RecordBatch], answer: Answer) -> list[Any]:
    """Return the rows of an epoch. The host reads the request, calls `answer`, and hangs up."""
    task, host = socket.socketpair()

    def serve() -> None:
        # A task without input fails and leaves before the host has sent anything.
        with suppress(ConnectionError), host, host.makefile("rwb") as file:
            stream = cast(BinaryIO, file)
            wire.send(stream, wire.Present())
            try:
                wire.receive(stream)
            except EOFError:
                return
            answer(stream)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        request = Host(operator(tmp_path)).sent(3, 1)
        output = run_epoch(task, request, batches)
        return [row for batch in output for row in batch.to_pylist()]
    finally:
        thread.join()
        assert task.fileno() == -1


def output_cut_by(count: int) -> Answer:
    def answer(stream: BinaryIO) -> None:
        wire.send(stream, wire.Accepted())
        list(wire.receive_batches(stream))
        assert isinstance(wire.receive(stream), wire.EndOfInput)
        wire.send(stream, wire.Durable())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, OUTPUT) as writer:
            writer.write_table(pa.table({"key": ["a"], "rows": [1], "total": [1]}, OUTPUT))
        stream.write(sink.getvalue().to_pybytes()[:-count])
        stream.flush()

    return answer


@pytest.mark.parametrize("count", [8, 20, 60, 200])
def test_a_host_that_dies_while_it_sends_output_is_named(tmp_path: Path, count: int) -> None:
    batches = iter(table_of([("a", 1)], 8).to_batches())
    with pytest.raises(StateHostError, match=r"subtask 0 died in epoch 3 .*/query/totals"):
        converse(tmp_path, batches, output_cut_by(count))


@pytest.mark.parametrize("good_batches", [0, 1])
def test_an_error_of_the_tasks_own_input_is_not_taken_for_the_hosts(
    tmp_path: Path, good_batches: int
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(good_batches):
            yield from table_of([("a", 1)], 8).to_batches()
        raise pa.ArrowInvalid("upstream's own failure")

    def read_all(stream: BinaryIO) -> None:
        wire.send(stream, wire.Accepted())
        while stream.read(1):
            pass

    with pytest.raises(pa.ArrowInvalid, match="upstream's own failure"):
        converse(tmp_path, batches(), read_all if good_batches else never_asked)


def never_asked(stream: BinaryIO) -> None:
    raise AssertionError("the request was sent")


@pytest.mark.parametrize(
    "error", [StateHostError("no space"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")]
)
def test_an_error_while_input_arrives_is_told_when_the_task_has_sent_all(
    tmp_path: Path, error: Exception
) -> None:
    # More than the socket buffers hold, so a host that stops reading blocks its task.
    batch = pa.record_batch({"number": pa.array(range(200_000))})

    class Refuses:
        def add(self, batch: pa.RecordBatch) -> None:
            raise error

    def answer(stream: BinaryIO) -> None:
        wire.send(stream, wire.Accepted())
        received = cast(ReceivedInput, Refuses())
        with socket.socket() as unused, pytest.raises(type(error)) as caught:
            receive_input(unused, stream, True, received)
        wire.send(stream, wire.Failed.of(caught.value))

    with pytest.raises(type(error)) as caught:
        converse(tmp_path, iter([batch] * 10), answer)
    assert str(caught.value) == str(error)
