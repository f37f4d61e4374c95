"""The state host's process: `python -m spark_state.host.server`, which the launcher starts, or a
fork of such a process.

The host listens on a Unix socket, runs each connection in a thread, and keeps the subtasks' state
between connections. The host ends when its executor is gone, or after a time without a request; the
state is in the stores. Before a host without requests ends, the host removes its socket, so that no
further task connects, and serves the tasks that connected before the removal. So no task loses its
host.

The host ends at once if an attempt has waited too long for an earlier attempt of its subtask: only
the end of the process ends a hanging thread. Then the tasks of the host's other subtasks fail, too,
and their next attempts restore the state in a new host.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import numpy as np
import pyarrow as pa

from checkpoint_store.files.held_folder import held
from spark_state.errors import StateHostError
from spark_state.executor import Executor, remove_directories_of_gone_executors
from spark_state.host import wire
from spark_state.host.garbage import FrozenGarbage
from spark_state.host.host_death import HUNG_EXIT_CODE, LAST_WORDS_SIGNAL
from spark_state.host.sessions import Sessions
from spark_state.subtasks.epoch_request import EpochRequest
from spark_state.subtasks.received_input import ReceivedInput
from spark_state.subtasks.subtask_session import DurableEpoch, HungSubtaskError

_WATCH_SECONDS = 1.0
# Output of at most this size fits into the socket, so the host need not wait for the task to read.
_SMALL_OUTPUT_BYTES = 64 * 1024
_SOCKET_BUFFER_BYTES = 4 * _SMALL_OUTPUT_BYTES  # the kernel also counts its own bookkeeping

_log = logging.getLogger(__name__)


class _TaskGoneError(Exception):
    """The task was killed. Its epoch is rolled back, and no answer is sent."""


class StateHost:
    """A server of requests on the Unix socket `path`. The server ends after `idle_seconds` without
    a request, or when `executor` is gone."""

    def __init__(self, path: Path, executor: Executor, idle_seconds: float) -> None:
        self._path = path
        self._executor = executor
        self._idle_seconds = idle_seconds
        self._sessions = Sessions(executor=executor)
        self._garbage = FrozenGarbage()
        self._lock = threading.Lock()
        self._active = 0
        self._last_used = time.monotonic()

    def serve(self, ready: Callable[[], None]) -> None:
        """Listen, call `ready`, and return when the process should end."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self._path))
            listener.listen(128)
            listener.settimeout(_WATCH_SECONDS)
            self._garbage.begin()
            ready()
            last_look = -_WATCH_SECONDS
            while True:
                if time.monotonic() - last_look >= _WATCH_SECONDS:
                    if not self._executor.is_running():
                        break
                    self._sessions.drop_unused(self._idle_seconds)
                    self._sessions.show_alive()
                    last_look = time.monotonic()
                try:
                    self._start(listener.accept()[0])
                except TimeoutError:
                    if self._is_idle():
                        self._leave(listener)
                        return
        remove_directories_of_gone_executors()

    def remove_local_files(self) -> None:
        """Remove this process's files from the local disk, when the process ends."""
        self._sessions.remove_local_files()

    def _is_idle(self) -> bool:
        with self._lock:
            return not self._active and time.monotonic() - self._last_used > self._idle_seconds

    def _leave(self, listener: socket.socket) -> None:
        self._path.unlink(missing_ok=True)
        listener.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self._start(listener.accept()[0])
        while self._active and self._executor.is_running():
            time.sleep(_WATCH_SECONDS)

    def _start(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        with self._lock:
            self._active += 1
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rwb") as file:
                self._converse(connection, cast(BinaryIO, file))
        except (EOFError, ConnectionError):
            pass  # the task was killed, and Spark knows
        except Exception:
            _log.exception("a conversation with a task ended unexpectedly")
        finally:
            with self._lock:
                self._active -= 1
                self._last_used = time.monotonic()
            self._garbage.collect_if_due()

    def _converse(self, connection: socket.socket, stream: BinaryIO) -> None:
        wire.send(stream, wire.Present())
        sent, has_input = wire.receive(stream)
        try:
            request = sent.received()
            unsent = self._run(connection, stream, request, has_input)
        except _TaskGoneError:
            return
        except HungSubtaskError as error:
            self._end_hung(stream, error)
        except BaseException as error:  # the processor's errors, sys.exit included, go to its task
            wire.send(stream, wire.Failed.of(error))
            return
        finally:
            self._garbage.freeze_if_due()
        if unsent is not None:
            _send_output(stream, request, unsent)

    def _end_hung(self, stream: BinaryIO, error: HungSubtaskError) -> NoReturn:
        """End the process with its hanging threads. Other subtasks of the process restore their
        state in a new host."""
        self._path.unlink(missing_ok=True)  # no further task connects here
        _log.critical("%s. Where each thread is:", error)
        faulthandler.dump_traceback(all_threads=True)
        with suppress(OSError):  # the task that waited may be gone
            wire.send(stream, wire.Failed.of(error))
        os._exit(HUNG_EXIT_CODE)

    def _run(
        self, connection: socket.socket, stream: BinaryIO, request: EpochRequest, has_input: bool
    ) -> DurableEpoch | None:
        """Run the epoch of a request, and complete the epoch. Return the durable epoch if its
        output is still to be sent, None if the output was sent before the completion."""
        sys.path.extend(entry for entry in request.module_path if entry not in sys.path)
        is_sent = False
        with self._sessions.subtask(request) as session:
            attempt = session.accept(request, lambda: _check_connected(connection))
            wire.send(stream, wire.Accepted())
            with closing(session.receive(request)) as received:
                receive_input(connection, stream, has_input, received)
                try:
                    with session.run(attempt, received.all()) as epoch:
                        received.close()
                        is_sent = _may_be_sent_early(request, epoch)
                        if is_sent:
                            _send_early(stream, request, epoch)
                except Exception:
                    if not is_sent:
                        raise
                    # The next epoch of the subtask looks at the barriers and completes this epoch.
                    _log.warning(
                        "epoch %d of %s is durable, but could not be completed yet",
                        request.task.epoch,
                        request.store_url,
                        exc_info=True,
                    )
        return None if is_sent else epoch


def _may_be_sent_early(request: EpochRequest, epoch: DurableEpoch) -> bool:
    """Return True if the output of a durable epoch need not wait for the epoch's completion.

    Output waits in three cases:

    - The operator has a clock (a source that triggers batches for timers). The clock reads the
      times of the newest completed epoch once, right after the batch.
    - The output is large. The host would have to wait until the task reads the output.
    - The epoch runs again. Another host may still have the state of the earlier attempt, and run
      the next epoch. As long as the epoch is not complete, the other host cannot know that the
      earlier attempt does not count.
    """
    has_clock = request.spec.processor.run_plan.inputs.tells_time
    is_small = epoch.output.bytes <= _SMALL_OUTPUT_BYTES
    return is_small and not has_clock and not epoch.is_repeated


def _send_early(stream: BinaryIO, request: EpochRequest, epoch: DurableEpoch) -> None:
    """Send the output before the epoch is completed. Raises no error of the sending: the task finds
    the connection closed, Spark tries the task again, and this epoch is still completed."""
    try:
        _send_output(stream, request, epoch)
    except ConnectionError:
        pass  # the task was killed, and Spark knows
    except Exception:
        _log.exception("the output of epoch %d could not be sent", request.task.epoch)


def _send_output(stream: BinaryIO, request: EpochRequest, epoch: DurableEpoch) -> None:
    """Send the output of a durable epoch (I3), and close the output."""
    with epoch.output as spool:
        wire.send(stream, wire.Durable())
        wire.send_batches(stream, request.spec.processor.output_schema, spool.read())
        wire.send(stream, wire.EndOfOutput())


def receive_input(
    connection: socket.socket, stream: BinaryIO, has_input: bool, received: ReceivedInput
) -> None:
    """Receive the input of an epoch, and add it to `received`. If `received` raises an error, the
    error is raised only after the task has sent all input, because the task reads no answer before
    that."""
    refused: Exception | None = None
    try:
        for batch in wire.receive_batches(stream) if has_input else ():
            if refused is None:
                try:
                    received.add(batch)
                except Exception as error:
                    refused = error  # of any type
        end = wire.receive(stream)
    except EOFError as error:
        raise _TaskGoneError("the input broke off") from error
    except (OSError, pa.ArrowException) as error:
        _check_connected(connection)
        raise StateHostError(f"the input cannot be read: {error}") from error
    assert isinstance(end, wire.EndOfInput), end
    if refused is not None:
        raise refused


def _check_connected(connection: socket.socket) -> None:
    """Raise _TaskGoneError if the task is gone. A live task sends nothing while the epoch runs."""
    try:
        gone = not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    except ConnectionError:
        gone = True
    if gone:
        raise _TaskGoneError("the task was killed")


def _slot_of_this_process(slots: Sequence[int]) -> int:
    """Fork a process for each slot but the first. Each process returns from the call, with its own
    slot."""
    pa.scalar(0)  # with its first value pyarrow imports pandas, which costs more than an epoch
    gc.freeze()  # a collection would write to the memory that the processes share
    first, *others = slots
    with warnings.catch_warnings():
        # Python warns of a fork beside threads. Only OpenBLAS and Arrow's allocator have threads
        # here, and both are made for a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        for slot in others:
            if os.fork() == 0:
                os.setsid()
                _draw_other_numbers()
                return slot
    return first


def _draw_other_numbers() -> None:
    """Seed NumPy's random generator anew: otherwise forked hosts draw the same numbers. Python's
    own generator is seeded anew at each fork."""
    if "numpy.random" in sys.modules:
        np.random.seed()


def main() -> None:
    """Run a host in this process, and the hosts of further slots in forks. Each host writes a byte
    to the ready descriptor when it listens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--slots", required=True)
    parser.add_argument("--executor", type=int, required=True)
    parser.add_argument("--executor-started", type=int, required=True)
    parser.add_argument("--idle-seconds", type=float, required=True)
    parser.add_argument("--ready-descriptor", type=int, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(format="cowstate host %(process)d: %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # While one thread keeps Python's lock, Python runs no signal handler; faulthandler's handler
    # works without the lock.
    faulthandler.register(LAST_WORDS_SIGNAL, all_threads=True, chain=True)

    def ready() -> None:
        os.write(arguments.ready_descriptor, b"R")
        os.close(arguments.ready_descriptor)

    directory: Path = arguments.directory
    with held(lambda: directory):  # forks hold the directory together
        slot = _slot_of_this_process([int(slot) for slot in arguments.slots.split(",")])
        executor = Executor(arguments.executor, arguments.executor_started)
        host = StateHost(directory / f"{slot}.sock", executor, arguments.idle_seconds)
        host.serve(ready)
    host.remove_local_files()
    os._exit(0)  # threads of a gone executor's tasks may still wait for a store


if __name__ == "__main__":
    main()
