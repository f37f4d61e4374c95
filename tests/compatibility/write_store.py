"""Writes a store that a release keeps: python -m tests.compatibility.write_store STATES FOLDER

STATES is `totals`, a value state, or `collections`, a list and a map state.

The store has two subtasks and twelve epochs. Every epoch adds a row of value 1 to each of ten keys,
and epoch 5 ran twice. With this snapshot policy, the newest checkpoint has a snapshot and
changelogs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator
from tests.support.processors.processors import KeepsValues, RunningTotals

EPOCHS = 12
ROWS = [(f"key{number}", 1) for number in range(10)]


PROCESSORS: dict[str, Callable[[], Any]] = {"totals": RunningTotals, "collections": KeepsValues}


def main(states: str, folder: Path) -> None:
    settings = replace(operator(folder).checkpoints, min_epochs_for_snapshot=4)
    spec = operator(folder, PROCESSORS[states](), parallelism=2, checkpoints=settings)
    with Maintenance() as maintenance:
        hosts = [Host(spec, subtask, "run-1").open(maintenance) for subtask in range(2)]
        for epoch in range(EPOCHS):
            for host in hosts:
                host.epoch(epoch, ROWS, attempt=2 * epoch + 1)
                if epoch == 5:
                    host.epoch(epoch, ROWS, attempt=2 * epoch + 2)
            hosts[0].finish_maintenance()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
