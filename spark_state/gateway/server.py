"""The gateway's process, `python -m spark_state.gateway.server`, which the provider starts.

The gateway listens on a Unix socket in the private directory of its executor (see
spark_state.executor), prints the path of the socket as a line on standard output, and serves each
connection in a thread. The gateway ends when its standard input ends: the executor holds standard
input open, and the operating system closes standard input when the executor is killed. The end of
the gateway loses nothing, because objects are created whole, and no process waits for an answer any
more.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from spark_state.errors import StateHostError
from spark_state.executor import (
    remove_directories_of_gone_executors,
    running_executor,
    socket_path,
    working_for,
)
from spark_state.gateway.frames import Frame, read_frame, write_frame
from spark_state.gateway.stored_objects import answer_of_error, opened_objects

_BACKLOG = 256
_PAUSE_SECONDS = 0.1
_log = logging.getLogger(__name__)


def serve(listener: socket.socket) -> None:
    """Serve connections, as long as the process lives."""
    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            # For example, too many files are open. The next connection may be accepted.
            _log.exception("a connection was not accepted")
            time.sleep(_PAUSE_SECONDS)
            continue
        _begin_serving(connection)


def _begin_serving(connection: socket.socket) -> None:
    thread = threading.Thread(target=_serve_connection, args=(connection,), daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # Too many threads. The executor repeats the request for as long as after the death of a
        # gateway.
        _log.exception("a connection got no thread")
        connection.close()


def _serve_or_end(listener: socket.socket) -> None:
    """Serve, and end the process if serving ends: otherwise all clients would wait for ever."""
    try:
        serve(listener)
    except Exception:
        _log.exception("no connection is accepted any more")
    finally:
        os._exit(1)


def _serve_connection(connection: socket.socket) -> None:
    try:
        with connection, connection.makefile("rwb") as file:
            converse(cast(BinaryIO, file))
    except (EOFError, ConnectionError):
        pass  # the executor has closed the connection
    except Exception:
        _log.exception("a connection ended unexpectedly")


def converse(stream: BinaryIO) -> None:
    """Answer the requests of a connection until the peer closes the connection. Raises EOFError at
    the end, and FrameError if the peer sends bytes that form no frame."""
    request = read_frame(stream)
    try:
        objects = opened_objects(request)
    except Exception as error:  # the provider gets the error, of whatever type
        write_frame(stream, answer_of_error(error))
        return
    write_frame(stream, Frame())
    while True:
        write_frame(stream, objects.answer(read_frame(stream)))


@contextmanager
def own_socket_path() -> Iterator[Path]:
    """Yield the path of this process's socket. Raises StateHostError if the executor is gone, or if
    there is no private directory for the socket."""
    executor = running_executor(os.getppid())
    if executor is None:
        raise StateHostError("the executor is gone")
    with working_for(executor):
        yield socket_path(executor, f"gateway-{os.getpid()}.sock")


def main() -> None:
    """Run the gateway's process: the entry point of the module."""
    logging.basicConfig(format="cowstate gateway %(process)d: %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    remove_directories_of_gone_executors()
    with (
        own_socket_path() as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        threading.Thread(target=_serve_or_end, args=(listener,), daemon=True).start()
        print(path, flush=True)
        # The executor reads only the path: other output of libraries belongs to the log.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        while os.read(sys.stdin.fileno(), 1):
            pass
    path.unlink(missing_ok=True)
    remove_directories_of_gone_executors()
    os._exit(0)  # threads may still wait for a store


if __name__ == "__main__":
    main()
