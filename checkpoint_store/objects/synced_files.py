"""Files and directories of a local disk that are still there after the power has failed."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

# Each one that fails has met a deletion of its own.
_CREATE_TRIES = 100

_T = TypeVar("_T")


def write_synced(path: Path, data: bytes) -> None:
    """Create a file with these bytes, durable on return but for its name, which needs the directory
    to be synced. Directories are made. Raises FileExistsError."""
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
    """Create something in a directory, which is made if it is not there.

    Between making a directory and creating in it, a deletion may remove it as empty. Raises OSError
    if that happens again and again.
    """
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
    """Return when the disk has it. On macOS fsync leaves it in the cache of the disk, and a file
    system that knows no full sync, such as one on the network, says so."""
    if full_sync := getattr(fcntl, "F_FULLFSYNC", None):
        with suppress(OSError):
            fcntl.fcntl(descriptor, full_sync)
            return
    os.fsync(descriptor)
