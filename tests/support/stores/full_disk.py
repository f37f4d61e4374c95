"""A host whose local disk is full for a while.

    python -m tests.support.stores.full_disk FOLDER WHEN KEYS

`WHEN`: from a "snapshot" on, at the "moment" of a snapshot, at a "restore", or at a "part" of a
snapshot, with which short runs begin. A limit for the size of files stands for the full disk. The
store is in memory. Each printed line is an attempt of an epoch: the error, or nothing. At the end,
the state must be whole, and FOLDER must be empty.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_state.errors import StateHostError
from spark_state.subtasks import store_session
from spark_state.subtasks.epoch_request import BackendSettings, OperatorSpec
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator
from tests.support.stores.fake_object_store import DictObjectStore

STORE = DictObjectStore()
SMALL, LARGE = 4_096, 50_000


def opened(url: str, storage_options: Mapping[str, Any] | None = None) -> DictObjectStore:
    """Replace open_object_store: return the store in memory."""
    return STORE


def let_files_have(most_bytes: int) -> None:
    """Limit the size of files from now on; -1 means no limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


class Epochs:
    """The epochs of an operator, each with a row of every key."""

    def __init__(self, keys: int) -> None:
        self._rows = [(f"key {number}", 1) for number in range(keys)]
        self._attempts = 0
        self._next = 0

    def attempt(self, host: Host) -> None:
        """Try to run the next epoch. Print the error, or an empty line."""
        self._attempts += 1
        try:
            output = host.epoch(self._next, self._rows, self._attempts)
        except StateHostError as error:
            print(error)
            return
        finally:
            host.finish_maintenance()
        self._next += 1
        assert output == {key: (self._next, self._next) for key, _ in self._rows}
        print()


def run_shortly(spec: OperatorSpec, epochs: Epochs, maintenance: Maintenance) -> Host:
    """Do three runs of one epoch. The last run has no space for the part of a snapshot at its
    start."""
    for run in range(3):
        let_files_have(LARGE if run == 2 else -1)
        host = Host(spec, run_id=f"run-{run}").open(maintenance)
        epochs.attempt(host)
        if run < 2:
            host.close()
    return host


def run_on(spec: OperatorSpec, epochs: Epochs, maintenance: Maintenance, when: str) -> Host:
    """Run some epochs, and then some epochs without space."""
    host = Host(spec).open(maintenance)
    for _ in range(3):
        epochs.attempt(host)
    assert [handle.kind for handle in host.handles] == ["database", "changelog"]
    if when == "restore":
        host.close()
        host = Host(spec, run_id="run-2").open(maintenance)
    let_files_have(SMALL)
    for _ in range(1 if when == "moment" else 3):
        epochs.attempt(host)
    files = [path for path in Path(spec.store_root).rglob("*") if path.is_file()]
    assert when == "moment" or not files, files
    return host


def main() -> None:
    folder, when, keys = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store_session.open_object_store = opened  # type: ignore[assignment]
    spec = operator(folder)
    spec = replace(
        spec,
        backend=BackendSettings(kind="rocksdb", local_directory=str(folder)),
        checkpoints=replace(spec.checkpoints, min_epochs_for_snapshot=2),
    )
    epochs = Epochs(keys)
    with Maintenance() as maintenance:
        if when == "part":
            host = run_shortly(spec, epochs, maintenance)
        else:
            host = run_on(spec, epochs, maintenance, when)
        let_files_have(-1)
        for _ in range(4):
            epochs.attempt(host)
        host.close()
    assert not [*folder.iterdir()]


if __name__ == "__main__":
    main()
