"""Folders that belong to the processes which hold a lock in them.

    <folder>/lock        locked, shared or alone, by each process that works in the folder

The operating system gives up the lock of a process that is killed. So any process can tell a folder
in which nobody works, also one of another container, which shares the directory and not the ids of
processes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "lock"
# Each one that fails has met a removal of its own.
_TRIES = 100


@contextmanager
def held(make: Callable[[], Path]) -> Iterator[Path]:
    """The folder that `make` makes if it is not there, shared with others that hold it, for the
    time of a `with`. Raises OSError."""
    folder, descriptor = _held(make)
    try:
        yield folder
    finally:
        os.close(descriptor)


def _held(make: Callable[[], Path]) -> tuple[Path, int]:
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            held_now = _try_to_hold(make())
            if held_now is not None:
                return held_now
    raise FileNotFoundError(errno.ENOENT, "removed as fast as it is made", str(make()))


def _try_to_hold(folder: Path) -> tuple[Path, int] | None:
    """The folder and the descriptor of its lock; None if it was removed meanwhile."""
    descriptor = _opened(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_at(descriptor, folder):
            return folder, descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def remove_if_free(folder: Path) -> None:
    """Remove a folder of this user in which no process works. Who begins to work there meanwhile
    makes it anew. Raises OSError, and BlockingIOError if a process works there."""
    descriptor = _opened(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, folder) and os.fstat(descriptor).st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _opened(folder: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(folder / LOCK, flags, 0o600)


def _is_at(descriptor: int, folder: Path) -> bool:
    """True if the lock belongs to the folder that is there, not to a removed one."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).lstat())
    except FileNotFoundError:
        return False
