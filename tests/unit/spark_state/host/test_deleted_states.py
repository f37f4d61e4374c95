"""deleteIfExists: a state that init deletes, declared again later, and read as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from checkpoint_store.errors import StateNotFoundError
from checkpoint_store.state_reader import open_store
from spark_state.host.maintenance import Maintenance
from tests.support.subtasks import Host, operator
from tests.support.table_rows_of import schema_json


class Declares(StatefulProcessor):
    """Sums a key's rows in the states that it is given; deletes another state."""

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


@pytest.fixture
def maintenance() -> Iterator[Maintenance]:
    with Maintenance() as threads:
        yield threads


def spec_of(folder: Path, *arguments: Any, snapshots_after: int) -> Any:
    spec = operator(folder, Declares(*arguments), key_schema_json=schema_json(key="string"))
    return replace(
        spec, checkpoints=replace(spec.checkpoints, min_epochs_for_snapshot=snapshots_after)
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
