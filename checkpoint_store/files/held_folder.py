"""Folders with a lock inside. A folder belongs to the processes that hold the lock.

    <folder>/lock        locked, shared or exclusively, by each process that works in the folder

The operating system releases the lock of a killed process. So any process can recognize a folder in
which nobody works. Processes of two containers may share the directory: the containers share locks,
but not process ids.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LOCK = "lock"
# Each failed try has met another removal.
_TRIES = 100


@contextmanager
def held(make: Callable[[], Path]) -> Iterator[Path]:
    """Hold the folder that `make` returns, for the time of a `with`. `make` makes the folder if it
    is missing. Other holders may share the folder. Raises OSError."""
    folder, descriptor = _held(make)
    try:
        yield folder
    finally:
        os.close(descriptor)


def _held(make: Callable[[], Path]) -> tuple[Path, int]:
    """Return the folder and the descriptor of its lock."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError), ExitStack() as without_lock:
            folder = make()
            descriptor = _opened(folder)
            without_lock.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _is_at(descriptor, folder):
                without_lock.pop_all()
                return folder, descriptor
    raise FileNotFoundError(errno.ENOENT, "removed as fast as it is made", str(make()))


def remove_if_free(folder: Path) -> None:
    """Remove a folder of this user in which no process works. If a process begins to work in the
    folder meanwhile, the process makes the folder anew. Raises OSError, and BlockingIOError for a
    folder in use."""
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
    """Return True if the opened lock is the file at this path. False if another process has
    removed the folder meanwhile, even if the folder was made again."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).lstat())
    except FileNotFoundError:
        return False
