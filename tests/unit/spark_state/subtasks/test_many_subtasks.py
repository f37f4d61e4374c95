"""Epochs, restarts and readers work with more subtasks than a group of barriers has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkpoint_store.progress_reader import read_progress
from checkpoint_store.state_reader import open_store
from spark_state.savepoints.savepoint import savepoint
from tests.support.operators.operator_states import NotesValues, held_by
from tests.support.operators.subtasks import KEY_SCHEMA, Host, OpenHost, Totals

MAX_PARALLELISM = 256
STORE = "query/totals"
ROWS = [(f"key {number}", number) for number in range(1, 401)]


def hosts_of(open_host: OpenHost, parallelism: int, run_id: str, *processor: Any) -> list[Host]:
    """Open a host for each subtask."""
    return [
        open_host(
            *processor,
            subtask=subtask,
            run_id=run_id,
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            key_schema_json=KEY_SCHEMA,
        )
        for subtask in range(parallelism)
    ]


def run(open_host: OpenHost, parallelism: int, run_id: str, epochs: range) -> Totals:
    """Run the epochs. Return the output of the last epoch."""
    hosts = hosts_of(open_host, parallelism, run_id)
    emitted: Totals = {}
    for epoch in epochs:
        emitted = {}
        for host in hosts:
            emitted |= host.epoch(epoch, ROWS)
    return emitted


def after(epochs: int) -> Totals:
    return {key: (epochs, epochs * value) for key, value in ROWS}


def groups_below(folder: Path) -> list[str]:
    return sorted(path.name[:17] for path in folder.rglob("group-*"))


def test_epochs_go_on_and_restart_at_other_parallelisms(
    open_host: OpenHost, tmp_path: Path
) -> None:
    assert run(open_host, 101, "run-1", range(2)) == after(2)
    assert groups_below(tmp_path) == ["group-00000-00099"] * 2 + ["group-00100-00100"] * 2
    assert run(open_host, 3, "run-2", range(2, 3)) == after(3)
    assert run(open_host, 205, "run-3", range(3, 4)) == after(4)
    assert run(open_host, 101, "run-4", range(4, 6)) == after(6)


def test_readers_and_savepoints_see_all_subtasks(open_host: OpenHost, tmp_path: Path) -> None:
    run(open_host, 101, "run-1", range(2))
    stored, saved = str(tmp_path / STORE), str(tmp_path / "saved")
    savepoint(stored, saved)
    for place in (stored, saved):
        rows = open_store(place).read().to_pylist()
        assert {row["key"]: row["rows"] for row in rows} == {key: 2 for key, _ in ROWS}
    [progress] = read_progress(stored, subtasks=True)
    assert len(progress.subtasks) == 101


def test_operator_state_is_dealt_from_all_groups(open_host: OpenHost) -> None:
    for host in hosts_of(open_host, 101, "run-1", NotesValues()):
        host.epoch(0, ROWS)
    hosts = hosts_of(open_host, 2, "run-2", NotesValues())
    for host in hosts:
        host.epoch(1, [])
    noted = [value for host in hosts for value in held_by(host).noted]
    assert sorted(noted) == [number for _, number in ROWS]
