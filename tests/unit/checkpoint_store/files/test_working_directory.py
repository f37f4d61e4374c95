"""A working directory is removed with the work, and if a process was killed, by a later process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_store.files import working_directory as module
from checkpoint_store.files.working_directory import (
    WorkingDirectoryError,
    remove_what_killed_processes_left,
    working_directory,
)

_WORKS = """
import os, signal, sys
from checkpoint_store.files.working_directory import working_directory

with working_directory("file:///store", "database.json") as folder:
    (folder / "table.sst").write_bytes(b"rows")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory with directories of another user."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    (folder / "cowstate-work-of-others").mkdir()
    (folder / "cowstate-0").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def folders(temporary: Path) -> set[str]:
    return {path.name for path in temporary.iterdir()} - {"cowstate-work-of-others", "cowstate-0"}


def test_it_is_private_and_goes_with_the_work(temporary: Path) -> None:
    with working_directory("file:///store", "database.json") as folder:
        (folder / "database").mkdir()
        assert folders(temporary) == {folder.name}
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folders(temporary)


def test_it_goes_when_the_work_fails(temporary: Path) -> None:
    with pytest.raises(KeyError), working_directory("file:///store", "database.json"):
        raise KeyError
    assert not folders(temporary)


@pytest.mark.process
def test_that_of_a_killed_process_goes_with_the_next_one_and_that_of_a_running_one_stays(
    temporary: Path,
) -> None:
    def begun() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return process, Path(process.stdout.readline().strip())

    running, used = begun()
    killed, left = begun()
    try:
        remove_what_killed_processes_left()
        assert folders(temporary) == {used.name, left.name}
        killed.kill()
        killed.communicate()
        with working_directory("file:///store", "database.json") as own:
            assert folders(temporary) == {used.name, own.name}
            assert (used / "table.sst").read_bytes() == b"rows"
    finally:
        running.communicate()
    assert not folders(temporary)


def test_that_of_another_user_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = temporary / "cowstate-work-left"
    left.mkdir()
    (left / "lock").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 4321)
        remove_what_killed_processes_left()
        assert folders(temporary) == {left.name}
    remove_what_killed_processes_left()
    assert not folders(temporary)


def no_directory(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def no_space(folder: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("refuse", "problem"), [(no_directory, "No such file"), (no_space, "No space left")]
)
def test_a_folder_that_cannot_be_made_is_told_with_the_directory_and_the_way_out(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[Path], None], problem: str
) -> None:
    def refused(*_: object, **__: object) -> str:
        refuse(temporary)
        return str((temporary / "new").mkdir())

    monkeypatch.setattr(module.tempfile, "mkdtemp", refused)
    with (
        pytest.raises(WorkingDirectoryError, match=problem) as told,
        working_directory("file:///store", "database.json"),
    ):
        raise AssertionError
    for part in ("database.json in file:///store", f"below {temporary}", "set TMPDIR"):
        assert part in str(told.value)
