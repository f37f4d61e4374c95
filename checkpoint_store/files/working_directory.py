"""Folders below the temporary directory, each for one piece of work and removed at its end.

    <temporary directory>/cowstate-work-<random>/        mode 0700
        lock                                             held by the process that works here

A killed process leaves its folder behind. The next process that makes a folder finds the old lock
free, and removes the old folder, see held_folder.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.files.held_folder import LOCK, held, remove_if_free

_PREFIX = "cowstate-work-"


@dataclass(eq=False)
class WorkingDirectoryError(CheckpointStoreError):
    """An object cannot be unpacked on the local disk for reading. `name`: the name of the
    object."""

    url: str
    name: str
    directory: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.url} is unpacked below {self.directory} to be read, and that "
            f"failed: {self.problem}. If the disk is full, free space. Or set TMPDIR to a "
            "directory that has space for the state of a subtask and that the user may write; for "
            "executors of Spark, set spark.executorEnv.TMPDIR"
        )


@contextmanager
def working_directory(url: str, name: str) -> Iterator[Path]:
    """Make a folder to unpack an object in, and remove the folder after the `with`. Raises
    WorkingDirectoryError if the folder cannot be made."""
    with ExitStack() as at_end:
        with telling_what_the_disk_refuses(url, name):
            remove_what_killed_processes_left()
            folder = at_end.enter_context(held(lambda: Path(tempfile.mkdtemp(prefix=_PREFIX))))
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def telling_what_the_disk_refuses(url: str, name: str) -> Iterator[None]:
    """Raise WorkingDirectoryError for an OSError that is raised while an object is unpacked."""
    try:
        yield
    except OSError as error:
        directory = tempfile.tempdir or "the temporary directory"
        raise WorkingDirectoryError(url, name, directory, str(error)) from error


def remove_what_killed_processes_left() -> None:
    """Remove this user's folders in which no process works."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{LOCK}"):
        # Another process works in the folder or removes it, or another user owns the folder.
        with suppress(OSError):
            remove_if_free(lock.parent)
