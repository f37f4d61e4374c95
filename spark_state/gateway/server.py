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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

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
_log = logging.getLogger(__name__)


def serve(listener: socket.socket) -> NoReturn:
    """Serve connections, as long as the process lives.

    If a connection cannot be accepted or gets no thread, for example because too many files are
    open, the process ends: the executor starts another gateway and repeats all requests under way.
    """
    try:
        while True:
            connection = listener.accept()[0]
            threading.Thread(target=_serve_connection, args=(connection,), daemon=True).start()
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
    the end, and ValueError if the peer sends bytes that form no frame."""
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
    # Not closed: `serve` uses it until the end of the process.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with own_socket_path() as path:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
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
