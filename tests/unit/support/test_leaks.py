"""The leak check finds every kind of leftover."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.leaks import Leftovers, await_leftovers, in_use

pytestmark = pytest.mark.process


def test_nothing_is_left_when_nothing_was_taken() -> None:
    assert await_leftovers(in_use(), patience_seconds=0.0) == Leftovers()


def test_each_kind_of_leftover_is_found(tmp_path: Path) -> None:
    before = in_use()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    thread.start()
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        with socket.create_server(("127.0.0.1", 0)), (tmp_path / "forgotten").open("w"):
            left = await_leftovers(before, patience_seconds=0.0)
    finally:
        release.set()
        thread.join()
        child.communicate(b"\n", timeout=30)
    assert [name.partition(" ")[0] for name in left.threads] == ["forgotten"]
    assert [Path(name.partition(" (")[0]).name for name in left.files] == ["forgotten"]
    assert len(left.sockets) == 1
    assert [name.partition(":")[0] for name in left.processes] == [str(child.pid)]
    assert await_leftovers(before, patience_seconds=10.0) == Leftovers()
