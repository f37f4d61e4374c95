"""Files and directories of a local disk that survive a power failure."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

# Each failed try has met another deletion.
_CREATE_TRIES = 100

_T = TypeVar("_T")


def write_synced(path: Path, data: bytes) -> None:
    """Create a file with these bytes, and the missing directories above the file. The bytes are
    durable on return; the name is durable only after the directory is synced. Raises
    FileExistsError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = create_in(path.parent, lambda: os.open(path, flags, 0o666))
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        _sync(descriptor)
    finally:
        os.close(descriptor)


def create_in(directory: Path, create: Callable[[], _T]) -> _T:
    """Call `create`, which creates something in `directory`. Make the directory first if it is
    missing. If a deletion removes the new, empty directory before `create` runs, both steps are
    repeated. Raises OSError if deletions remove the directory again and again."""
    for _ in range(_CREATE_TRIES):
        with suppress(FileNotFoundError):
            return create()
        _make_directories(directory)
    raise OSError(errno.EBUSY, f"{directory} is deleted as fast as it is made")


def _make_directories(path: Path) -> None:
    """Make `path` and its parents, each durable."""
    if not path.is_dir():
        _make_directories(path.parent)
        with suppress(FileExistsError):
            path.mkdir()
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Return when the disk has the data. On macOS fsync leaves the data in the disk's cache, so the
    full sync is tried first. A file system without full sync, such as a network file system,
    refuses, and fsync is used."""
    if full_sync := getattr(fcntl, "F_FULLFSYNC", None):
        with suppress(OSError):
            fcntl.fcntl(descriptor, full_sync)
            return
    os.fsync(descriptor)
