"""Writes the stores of operators: python -m tests.compatibility.write_store FOLDER

`heap`, of two subtasks, and `rocksdb`, of one, have the states of KeepsEverything. Every epoch adds
a row of value 1 to each of ten keys. On the heap, the first subtask ran the last epoch twice. The
newest checkpoint needs a snapshot of each subtask, which is a database in RocksDB, and a changelog.
`groups` has eleven subtasks, whose barriers are in groups.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from checkpoint_store.epochs.subtask_groups import SubtaskGroups
from checkpoint_store.objects.object_store import open_object_store
from spark_state.processor.input.epoch_inputs import EpochInputs, control_key_group
from spark_state.processor.input.epoch_time import both_times
from spark_state.processor.input.event_times import EventTimes
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.subtasks.epoch_request import (
    NEVER_RUN,
    BackendSettings,
    OperatorSpec,
    OperatorStart,
)
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.lone_subtasks import Operator, run_epoch, started
from tests.support.operators.subtasks import Host, Totals, operator, table_of
from tests.support.tables.table_rows_of import schema_json

EPOCHS = 4
ROWS = [(f"key{number}", 1) for number in range(10)]
SUBTASKS = {"heap": 2, "rocksdb": 1}
LONGEST_LIST = 2
TTL_MS, TIMER_MS = 10_000, 60_000
GROUPED = Operator("run-1", 11, groups=SubtaskGroups(digits=1))
OF_GROUPS = {0: 1, 64: 2, 127: 3}


class KeepsEverything(StatefulProcessor):
    """Processor that keeps the values of a key in a state of every kind. The state does not grow
    from epoch to epoch, so snapshots are soon due.

    Emits Row(key, rows, total): the number and the sum of the key's values.
    """

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._totals = handle.getValueState("totals", "rows bigint, total bigint")
        self._items = handle.getListState("items", "value bigint")
        self._counts = handle.getMapState("counts", "value bigint", "times bigint")
        self._last = handle.getValueState("last", "value bigint", TTL_MS)
        self._noted = handle.getListOperatorState("noted", "value bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        for row in rows:
            count, total = count + 1, total + row.value
            before = self._counts.getValue((row.value,))
            self._counts.updateValue((row.value,), (before[0] + 1 if before else 1,))
            self._items.put([*self._items.get(), (row.value,)][-LONGEST_LIST:])
            self._last.update((row.value,))
            self._noted.appendValue((row.value,))
        self._totals.update((count, total))
        self._handle.registerTimer(TIMER_MS)
        yield Row(key=key[0], rows=count, total=total)

    def close(self) -> None:
        pass


def batch_ms(epoch: int) -> int:
    """The time of an epoch's batch, in milliseconds since 1970."""
    return 1_000 * (epoch + 1)


def spec_of(folder: Path, backend: str, parallelism: int) -> OperatorSpec:
    """The spec of KeepsEverything in a store below `folder`."""
    spec = operator(
        folder,
        KeepsEverything(),
        "ProcessingTime",
        parallelism=parallelism,
        key_schema_json=schema_json(key="string"),
        backend=BackendSettings(backend),  # type: ignore[arg-type]
    )
    plan = replace(
        spec.processor.run_plan,
        inputs=EpochInputs(InputLayout(("key", "value"), (0,)), tells_time=True),
        shown_time=both_times,
        event_times=EventTimes(index=None, delays_ms=(), policy="min", drops_late=False),
    )
    settings = replace(spec.checkpoints, min_epochs_for_snapshot=1)
    return replace(spec, processor=replace(spec.processor, run_plan=plan), checkpoints=settings)


def run_of(host: Host, epoch: int, attempt: int = 0) -> Totals:
    """Run an epoch over ROWS at a host."""
    rows = host.own(table_of(ROWS, host.spec.max_parallelism))
    control = {
        "key": [None],
        "value": [None],
        "_cowstate_key_group": [control_key_group(host.subtask)],
    }
    united = pa.concat_tables([rows, pa.table(control, schema=rows.schema)])
    times = pa.array([batch_ms(epoch)] * united.num_rows, pa.int64())
    return host.run(epoch, united.append_column("_cowstate_batch_ms", times), attempt)


def write_store(folder: Path, backend: str) -> None:
    """Write the store of an operator, and delete what the last two epochs do not need."""
    spec = spec_of(folder, backend, SUBTASKS[backend])
    start = OperatorStart("file:///checkpoint", NEVER_RUN)
    with Maintenance() as maintenance:
        hosts = [
            Host(spec, subtask, "run-1", start=start).open(maintenance)
            for subtask in range(spec.parallelism)
        ]
        for epoch in range(EPOCHS):
            for host in hosts:
                run_of(host, epoch)
            hosts[0].finish_maintenance()
        if backend == "heap":
            run_of(hosts[0], EPOCHS - 1, attempt=EPOCHS + 1)
        hosts[0].checkpoints.retain(2)
        for host in hosts:
            host.close()


def write_groups(folder: Path) -> None:
    """Write a store whose manifest names groups."""
    run_epoch(started(open_object_store(str(folder)), GROUPED), 0, OF_GROUPS)


def main(folder: Path) -> None:
    for backend in SUBTASKS:
        write_store(folder / backend, backend)
    write_groups(folder / "groups")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
