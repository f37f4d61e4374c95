"""Test that stores of format version 1 stay readable. `write_store.py` wrote the stores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.state_reader import open_store
from spark_state.operator_state.list_operator_state import ListOperatorState
from spark_state.subtasks.maintenance import Maintenance
from tests.compatibility.write_store import (
    EPOCHS,
    GROUPED,
    LONGEST_LIST,
    OF_GROUPS,
    ROWS,
    SUBTASKS,
    TIMER_MS,
    main,
    run_of,
    spec_of,
)
from tests.support.operators.subtasks import Host
from tests.support.stores.stored_forms import forms_in

FIXTURES = Path(__file__).parent / "version_1"
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
