"""A put on a local disk is atomic, though its process is killed at any system call."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.deletion import sweep_orphans
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.tables.table_orphans import TableOrphans
from checkpoint_store.tables.table_store import TableStore

pytestmark = pytest.mark.fault

NAME = "versions/0000000000000000000.json"
KILLED = 9
PROGRAM = f"""
import os, sys
from pathlib import Path
from checkpoint_store.objects.local_object_store import LocalObjectStore

left = int(sys.argv[2])

def counted(call):
    def wrapper(*arguments, **options):
        global left
        left -= 1
        if not left:
            os._exit({KILLED})
        return call(*arguments, **options)
    return wrapper

real_write = os.write
os.write = lambda descriptor, data: real_write(descriptor, data[:400])
for name in ("open", "write", "fsync", "close", "link", "unlink", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
LocalObjectStore(Path(sys.argv[1])).put({NAME!r}, b"x" * 1000)
"""


def put_is_killed(root: Path, call: int) -> bool:
    """Put an object in a process that is killed before a system call. Return True if the process
    reached the call."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), str(call)], timeout=120, check=False
    )
    assert finished.returncode in (0, KILLED)
    return finished.returncode == KILLED


def test_an_object_is_there_whole_or_not_at_all_wherever_its_writer_is_killed(
    tmp_path: Path,
) -> None:
    outcomes = []
    while True:
        store = LocalObjectStore(tmp_path / str(len(outcomes)))
        if not put_is_killed(store.root, len(outcomes) + 1):
            break
        try:
            published = store.get(NAME) == b"x" * 1000
            assert published
        except ObjectMissingError:
            published = False
        assert [info.length for info in store.list("versions")] == [1000] * published
        # A later put takes the name, or learns that the name is taken.
        if published:
            with pytest.raises(ObjectExistsError):
                store.put(NAME, b"next")
        else:
            store.put(NAME, b"next")
        left = [info.name for info in store.list(UNPUBLISHED)]
        sweeps = (
            CompletedCheckpointStore(store).sweep_orphans,
            partial(sweep_orphans, store, TableOrphans(store, TableStore(store))),
        )
        with_newest = max((info.modified or 0 for info in store.list(UNPUBLISHED)), default=0.0)
        assert sweeps[0](100.0, with_newest + 99.0) == []
        store.delete([NAME])
        assert sweeps[len(outcomes) % 2](100.0, with_newest + 101.0) == left
        outcomes.append((published, bool(left)))
    # Kills before the file, during the write, between file and name, between name and clean-up,
    # after.
    assert dict.fromkeys(outcomes) == dict.fromkeys(
        [(False, False), (False, True), (True, True), (True, False)]
    )
    assert len(outcomes) > 10
