"""The gateway listens privately, serves many connections, and ends with the executor."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from spark_state.gateway.frames import FORMAT, Frame, read_frame, write_frame

pytestmark = pytest.mark.process
MODULE = "spark_state.gateway.server"


ACCEPTING_NOTHING = """
import socket
from spark_state.gateway import server
class Listener(socket.socket):
    def accept(self):
        raise OSError("too many open files")
socket.socket = Listener
server.main()
"""


@contextmanager
def gateway(*program: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a gateway process. Yield the process and the path of its socket."""
    process = subprocess.Popen(
        [sys.executable, *(program or ("-m", MODULE))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        yield process, Path(process.stdout.readline().strip())
        process.kill()
    process.wait()


@contextmanager
def connection(path: Path) -> Iterator[BinaryIO]:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        with client.makefile("rwb") as stream:
            yield cast(BinaryIO, stream)


def asked(stream: BinaryIO, header: dict[str, object], body: bytes = b"") -> Frame:
    write_frame(stream, Frame(header, body))
    return read_frame(stream)


def open_store(stream: BinaryIO, url: object, request_format: int = FORMAT) -> Frame:
    header = {"do": "open", "format": request_format, "url": str(url), "options": {}}
    return asked(stream, {**header, "retry_seconds": 5})


def test_only_this_user_can_reach_it() -> None:
    with gateway() as (_, path):
        mode = path.parent.stat().st_mode
        assert not mode & (stat.S_IRWXG | stat.S_IRWXO)
        assert path.parent.stat().st_uid == os.getuid()


def test_it_serves_many_connections_at_once(tmp_path: Path) -> None:
    def work(number: int) -> bytes:
        with connection(path) as stream:
            assert open_store(stream, tmp_path) == Frame()
            for turn in range(5):
                name = f"state/0/{number}/{turn}"
                put = {"do": "put", "name": name}
                assert asked(stream, put, name.encode() * 100) == Frame()
            get = {"do": "get", "name": f"state/0/{number}/4", "start": 0, "length": 1 << 20}
            return asked(stream, get).body

    with gateway() as (_, path), ThreadPoolExecutor(64) as pool:
        contents = list(pool.map(work, range(64)))
    assert contents == [f"state/0/{number}/4".encode() * 100 for number in range(64)]


def test_it_ends_when_its_executor_holds_its_input_open_no_more(tmp_path: Path) -> None:
    with gateway() as (process, path):
        with connection(path) as stream:
            # The end of the process resets connections that were not yet accepted.
            assert open_store(stream, tmp_path) == Frame()
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
            assert stream.read() == b""
        assert not path.exists()


def test_a_request_that_fails_ends_its_connection_alone(tmp_path: Path) -> None:
    with gateway() as (_, path):
        with connection(path) as stream:
            answer = open_store(stream, "nowhere://bucket")
            assert answer.header["error"] == "access"
            assert "no file system is known for nowhere://" in answer.header["message"]
            assert stream.read() == b""
        with connection(path) as stream:
            assert open_store(stream, tmp_path, FORMAT + 1).header["error"] == "failed"
        with connection(path) as stream:
            stream.write(b"GET / HTTP/1.1\r\n\r\n")
            stream.flush()
            assert stream.read() == b""
        with connection(path) as stream:
            assert open_store(stream, tmp_path) == Frame()


def test_it_ends_when_it_accepts_no_connections_any_more() -> None:
    with gateway("-c", ACCEPTING_NOTHING) as (process, _):
        assert process.wait(60) == 1


def test_it_imports_neither_spark_nor_arrow() -> None:
    heavy = "{'pyspark', 'pyarrow', 'fsspec'} & sys.modules.keys()"
    code = f"import sys, {MODULE}; print({heavy})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
