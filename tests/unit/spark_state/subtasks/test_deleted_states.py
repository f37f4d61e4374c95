"""A state deleted in `init` is empty when declared again, and readers see the deletion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from checkpoint_store.epochs.completed_checkpoint import StateSchema
from checkpoint_store.errors import StateNotFoundError
from checkpoint_store.open_history import open_history
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.progress_reader import read_progress
from checkpoint_store.state_reader import open_store
from spark_state.errors import ConfigurationError
from spark_state.processor.condition_errors import ProcessorHandleError
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator
from tests.support.tables.table_rows_of import schema_json


class Declares(StatefulProcessor):
    """Sums a key's rows in the states `names`; deletes the state `deletes`."""

    def __init__(self, names: tuple[str, ...], deletes: str = "none") -> None:
        self._names = names
        self._deletes = deletes

    def init(self, handle: Any) -> None:
        handle.deleteIfExists(self._deletes)
        self._states = [handle.getValueState(name, "n bigint") for name in self._names]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        added = sum(row.value for row in rows)
        for state in self._states:
            (before,) = state.get() or (0,)
            state.update((before + added,))
            yield Row(key=key[0], rows=1, total=before + added)

    def close(self) -> None:
        pass


def spec_of(folder: Path, *arguments: Any, snapshots_after: int) -> Any:
    return operator(
        folder,
        Declares(*arguments),
        key_schema_json=schema_json(key="string"),
        min_epochs_for_snapshot=snapshots_after,
    )


def total_of(host: Host, state: str, version: int | None = None) -> dict[str, int]:
    rows = open_store(host.request(0, 0).store_url, state=state).read(version).to_pylist()
    return {row["key"]: row["n"] for row in rows}


@pytest.mark.parametrize("snapshots_after", [1, 100])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_state_begins_empty_when_it_is_declared_again(
    tmp_path: Path, maintenance: Maintenance, snapshots_after: int, restarts: bool
) -> None:
    scripts: list[tuple[Any, ...]] = [
        (("kept", "old"),),
        (("kept",), "old"),
        (("kept", "old"),),
        (("kept", "old"),),
    ]
    host = Host(spec_of(tmp_path, *scripts[0], snapshots_after=snapshots_after)).open(maintenance)
    for epoch, script in enumerate(scripts):
        spec = spec_of(tmp_path, *script, snapshots_after=snapshots_after)
        host.spec = replace(spec, plan_id=f"plan {epoch}")
        host.run_id = f"run-{epoch}"
        if restarts:
            host.finish_maintenance()
            host.open(maintenance)
        host.epoch(epoch, [("a", 1), ("b", 10)])
    assert total_of(host, "kept") == {"a": 4, "b": 40}
    assert total_of(host, "old") == {"a": 2, "b": 20}
    assert total_of(host, "old", 0) == {"a": 1, "b": 10}
    assert total_of(host, "old", 2) == {"a": 1, "b": 10}
    with pytest.raises(StateNotFoundError, match="'old'"):
        total_of(host, "old", 1)


def test_an_epoch_that_fails_deletes_nothing(tmp_path: Path, maintenance: Maintenance) -> None:
    host = Host(spec_of(tmp_path, ("kept", "old"), snapshots_after=100)).open(maintenance)
    host.epoch(0, [("a", 1)])
    host.spec = replace(spec_of(tmp_path, ("kept",), "old", snapshots_after=100), plan_id="second")
    host.run_id = "run-2"

    def fail() -> None:
        raise TimeoutError("the task is gone")

    with pytest.raises(TimeoutError):
        host.epoch(1, [("a", 1)], attempt=1, check=fail)
    host.spec = replace(spec_of(tmp_path, ("kept", "old"), snapshots_after=100), plan_id="third")
    host.run_id = "run-3"
    assert host.epoch(1, [("a", 1)], attempt=2) == {"a": (1, 2)}
    assert total_of(host, "old") == {"a": 2}


class Discards(Declares):
    """Sums a key's rows in the state "kept"; declares and deletes "spare", and deletes "old"."""

    def __init__(self) -> None:
        super().__init__(("kept",), "old")

    def init(self, handle: Any) -> None:
        super().init(handle)
        handle.getListState("spare", "n bigint")
        for name in ("spare", "spare", "old", "never there"):
            handle.deleteIfExists(name)


def discarding(folder: Path, run: int) -> Any:
    spec = operator(folder, Discards(), key_schema_json=schema_json(key="string"))
    return replace(spec, plan_id=f"plan {run}")


def states_deleted(host: Host) -> int | None:
    assert host.report is not None
    return host.report.states_deleted


def deleted_in_barriers(host: Host, epoch: int) -> list[tuple[str, ...]]:
    history = open_history(host.request(0, 0).store_url)
    assert isinstance(history, OperatorHistory)
    barriers = history.checkpoint_at(epoch).barriers
    return [tuple(state.name for state in barrier.deleted_states) for barrier in barriers]


def test_an_epoch_counts_the_states_that_were_there_and_are_deleted(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    host = Host(spec_of(tmp_path, ("kept", "old"), snapshots_after=100)).open(maintenance)
    host.epoch(0, [("a", 1)])
    assert (states_deleted(host), deleted_in_barriers(host, 0)) == (0, [()])
    host.spec, host.run_id = discarding(tmp_path, 1), "run-2"
    counted = []
    for epoch in (1, 2, 3):
        host.epoch(epoch, [("a", 1)])
        counted.append(states_deleted(host))
        assert deleted_in_barriers(host, epoch) == [("spare",)]
    assert counted == [2, 1, 1]
    told = read_progress(host.request(0, 0).store_url, epochs=4)
    assert [epoch.states_deleted for epoch in told] == [0, 2, 1, 1]


def test_a_state_that_was_there_and_is_declared_and_deleted_counts_once(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    host = Host(spec_of(tmp_path, ("kept", "spare"), snapshots_after=100)).open(maintenance)
    host.epoch(0, [("a", 1)])
    host.spec, host.run_id = discarding(tmp_path, 1), "run-2"
    host.epoch(1, [("a", 1)])
    assert states_deleted(host) == 1
    with pytest.raises(StateNotFoundError, match="'spare'"):
        total_of(host, "spare")
    assert total_of(host, "spare", 0) == {"a": 1}


def test_an_epoch_that_runs_again_counts_as_it_did(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    host = Host(spec_of(tmp_path, ("kept", "old"), snapshots_after=100)).open(maintenance)
    host.epoch(0, [("a", 1)])
    host.spec, host.run_id = discarding(tmp_path, 1), "run-2"
    for attempt in (2, 3):
        host.epoch(1, [("a", 1)], attempt=attempt)
        assert states_deleted(host) == 2
    host.run_id = "run-3"
    host.epoch(1, [("a", 1)], attempt=1)
    assert states_deleted(host) == 2


def test_each_subtask_counts_a_state(tmp_path: Path, maintenance: Maintenance) -> None:
    two = [
        replace(spec, parallelism=2)
        for spec in (
            spec_of(tmp_path, ("kept", "old"), snapshots_after=100),
            discarding(tmp_path, 1),
        )
    ]
    for epoch, spec in enumerate(two):
        for subtask in (0, 1):
            host = Host(spec, subtask=subtask, run_id=f"run-{epoch}").open(maintenance)
            host.epoch(epoch, [("a", 1)])
    (told,) = read_progress(host.request(0, 0).store_url, subtasks=True)
    assert (told.epoch, told.states_deleted) == (1, 4)
    assert [subtask.states_deleted for subtask in told.subtasks] == [2, 2]


def test_the_schema_of_a_state_that_is_declared_and_deleted_is_kept(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    host = Host(discarding(tmp_path, 0)).open(maintenance)
    host.epoch(0, [("a", 1)])
    history = open_history(host.request(0, 0).store_url)
    assert isinstance(history, OperatorHistory)
    (barrier,) = history.checkpoint_at(0).barriers
    (spare,) = host.spec.processor.deleted_states
    assert barrier.deleted_states == (StateSchema("spare", "list", spare.schema_json),)
    assert [state.name for state in barrier.states] == ["kept"]
    assert total_of(host, "kept") == {"a": 1}


class CallsLater(Declares):
    """Keeps the handle, and calls a method of the handle while keys are handled."""

    def __init__(self, call: tuple[str, ...]) -> None:
        super().__init__(("total",))
        self._call = call

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if key[0] == "b":
            method, *arguments = self._call
            getattr(self._handle, method)(*arguments)
        yield from super().handleInputRows(key, rows, timerValues)


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        (("deleteIfExists", "total"), "delete_if_exists"),
        (("getValueState", "total", "n bigint"), "get_value_state"),
        (("getMapState", "other", "n bigint", "n bigint"), "get_map_state"),
        (("getListOperatorState", "items", "n bigint"), "get_operator_state"),
    ],
)
def test_states_are_declared_and_deleted_in_init_only(
    tmp_path: Path, maintenance: Maintenance, call: tuple[str, ...], operation: str
) -> None:
    spec = operator(tmp_path, Declares(("total",)), key_schema_json=schema_json(key="string"))
    host = Host(spec).open(maintenance)
    host.epoch(0, [("a", 1), ("b", 1)])
    later = replace(spec, processor=operator(tmp_path, CallsLater(call)).processor)
    again = Host(later, run_id="later").open(maintenance)
    with pytest.raises(ProcessorHandleError, match=f"operation={operation} .*INITIALIZED.* init"):
        again.epoch(1, [("a", 1), ("b", 1)])
    host = Host(spec, run_id="third").open(maintenance)
    assert host.epoch(1, [("a", 1), ("b", 1)]) == {"a": (1, 2), "b": (1, 2)}
    for opened in (host, again):
        opened.close()


class DeletesOnHosts(Declares):
    """Deletes the state "total" in `init` only on hosts, not while the query is planned."""

    is_on_host = False

    def init(self, handle: Any) -> None:
        super().init(handle)
        if type(self).is_on_host:
            handle.deleteIfExists("total")


def test_an_init_that_deletes_a_state_on_hosts_only_is_refused(
    tmp_path: Path, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(operator(tmp_path, DeletesOnHosts(("total",)))).open(maintenance)
    host.epoch(0, [("a", 1)])
    monkeypatch.setattr(DeletesOnHosts, "is_on_host", True)
    with pytest.raises(ConfigurationError, match="state 'total' was not deleted when"):
        host.epoch(1, [("a", 1)])
    monkeypatch.undo()
    assert host.epoch(1, [("a", 1)], attempt=9) == {"a": (1, 2)}
    host.close()
