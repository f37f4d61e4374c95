"""Stores of format version 1 stay readable. This module wrote the stores:

    python -m tests.compatibility.test_stores_of_version_1 FOLDER

`heap`, of two subtasks, and `rocksdb`, of one, have the states of KeepsEverything. Every epoch adds
a row of value 1 to each of ten keys. On the heap, the first subtask ran the last epoch twice. The
newest checkpoint needs a snapshot of each subtask, which is a database in RocksDB, and a changelog.
`groups` has eleven subtasks, whose barriers are in groups.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from checkpoint_store.epochs.subtask_groups import SubtaskGroups
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.state_reader import open_store
from spark_state.operator_state.list_operator_state import ListOperatorState
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import EpochInputs
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
from tests.support.stores.stored_forms import forms_in
from tests.support.tables.table_rows_of import schema_json

FIXTURES = Path(__file__).parent / "version_1"
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


KEYS = {key for key, _ in ROWS}
ONE = {"value": 1}

each_backend = pytest.mark.parametrize("backend", SUBTASKS)


def noted(host: Host) -> list[Any]:
    """The items of the subtask's operator state."""
    assert host.session is not None
    (meta_info,) = host.spec.processor.operator_states
    state = host.session.operator_state.backend.register(meta_info)
    assert isinstance(state, ListOperatorState)
    return [*state.get()]


@each_backend
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_store_restores_and_goes_on(backend: str, parallelism: int, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / backend, tmp_path / "store")
    spec = spec_of(tmp_path / "store", backend, parallelism)
    emitted: dict[str, tuple[int, int]] = {}
    items: list[Any] = []
    with Maintenance() as maintenance:
        for subtask in range(parallelism):
            host = Host(spec, subtask, "run-2").open(maintenance)
            emitted |= run_of(host, EPOCHS)
            items += noted(host)
            host.close()
    assert emitted == dict.fromkeys(KEYS, (EPOCHS + 1, EPOCHS + 1))
    assert len(items) == len(ROWS) * (EPOCHS + 1)


@each_backend
@pytest.mark.parametrize("epoch", [EPOCHS - 2, EPOCHS - 1])
def test_every_state_of_a_retained_epoch_is_read(backend: str, epoch: int) -> None:
    contents = {
        "totals": {"rows": epoch + 1, "total": epoch + 1},
        "items": {"list_value": [ONE] * LONGEST_LIST},
        "counts": {"map_value": [(ONE, {"times": epoch + 1})]},
        "last": ONE,
        "$procTimers": {"expiry_ms": TIMER_MS},
    }
    for state, content in contents.items():
        rows = open_store(f"{FIXTURES}/{backend}/query/totals", state=state).read(epoch)
        held = {row.pop("key"): row for row in rows.to_pylist()}
        assert held == dict.fromkeys(KEYS, content), state


def test_the_barriers_of_many_subtasks_are_read_from_groups() -> None:
    checkpoints = CompletedCheckpointStore(open_object_store(str(FIXTURES / "groups")))
    checkpoints.open(GROUPED.metadata)
    checkpoint = checkpoints.latest_before(1)
    assert checkpoint is not None
    assert len(checkpoint.group_objects) == 2
    rows = [
        row
        for subtask in range(GROUPED.parallelism)
        for handle in checkpoint.handles_for(GROUPED.asked(subtask).key_groups)
        for batch in checkpoints.files.states.read(handle, GROUPED.asked(subtask).key_groups)
        for row in batch.to_pylist()
    ]
    assert {row["key"]: row["value"] for row in rows} == OF_GROUPS


def test_stores_are_written_in_the_form_of_version_1(tmp_path: Path) -> None:
    main(tmp_path)
    for store in (*SUBTASKS, "groups"):
        assert forms_in(tmp_path / store) == forms_in(FIXTURES / store), store


if __name__ == "__main__":
    main(Path(sys.argv[1]))
