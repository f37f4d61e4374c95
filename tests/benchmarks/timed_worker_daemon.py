"""Spark's daemon of Python workers, with a clock in the tasks of cowstate's operators.

`spark.python.daemon.module` names this module in a profiling run of latency.py. Each task of an
operator appends a line of JSON to a file in the folder COWSTATE_TASK_TIMES: the epoch, the subtask,
and the seconds since 1970 of each step.

    called      Spark called the function of the partition
    first       the first batch of the input is there, or the end of the input
    connected   the task has a connection to the state host
    Present, Accepted, Durable, EndOfOutput     the message has come from the host
    ended       the function has returned
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import daemon

from spark_state.host import client, launcher

FOLDER_VARIABLE = "COWSTATE_TASK_TIMES"

_times: dict[str, float] = {}


def _note(step: str) -> None:
    _times[step] = time.time()


def _timed_expect(expect: Any) -> Any:
    def timed(stream: Any, kind: type) -> Any:
        message = expect(stream, kind)
        _note(kind.__name__)
        return message

    return timed


def _timed_connect(connect: Any) -> Any:
    def timed(*arguments: Any) -> Any:
        _times.clear()
        _note("called")
        connection = connect(*arguments)
        _note("connected")
        return connection

    return timed


def _with_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = next(batches, None)
    _note("first")
    if first is not None:
        yield first
        yield from batches


def _timed_run(run_epoch: Any) -> Any:
    def timed(connection: Any, request: Any, batches: Any) -> Iterator[pa.RecordBatch]:
        yield from run_epoch(connection, request, _with_first(batches))
        _note("ended")
        record = {"epoch": request.task.epoch, "subtask": request.task.subtask, **_times}
        path = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.jsonl"
        with path.open("a") as file:
            file.write(f"{json.dumps(record)}\n")

    return timed


if __name__ == "__main__":
    client._expect = _timed_expect(client._expect)
    # A task's function is pickled, and names its functions by their modules.
    launcher.connect = _timed_connect(launcher.connect)
    client.run_epoch = _timed_run(client.run_epoch)
    daemon.manager()
