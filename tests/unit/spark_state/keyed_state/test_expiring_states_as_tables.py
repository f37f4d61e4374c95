"""Tables of states that expire show only unexpired values, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from checkpoint_store.state_reader import StateReader, open_store
from checkpoint_store.states.state_cache import StateCache
from spark_state.live_state import live_view
from spark_state.processor import timed_steps
from spark_state.processor.input.control_rows import control_key_group
from spark_state.processor.input.epoch_inputs import EpochInputs
from spark_state.processor.input.epoch_time import both_times
from spark_state.processor.input.event_times import EventTimes
from spark_state.processor.input.key_grouping import InputLayout
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator, table_of
from tests.support.tables.table_rows_of import schema_json


class Keeps(StatefulProcessor):
    """Keeps each row in three states that expire after 100 ms; a negative row clears the states."""

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", "n bigint", 100)
        self._all = handle.getListState("all", "n bigint", 100)
        self._counts = handle.getMapState("counts", "n bigint", "times bigint", 100)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.value < 0:
                self._last.clear()
                self._all.clear()
                self._counts.clear()
            else:
                self._last.update((row.value,))
                self._all.appendValue((row.value,))
                self._counts.updateValue((row.value,), (1,))
        return iter([])

    def close(self) -> None:
        pass


@pytest.fixture(params=["removed at once", "removed later"])
def host(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    """A subtask whose epochs remove all expired values at once, or two values at a time."""
    if request.param == "removed later":
        monkeypatch.setattr(timed_steps, "_EXPIRED_AT_LEAST", 2)
    spec = operator(tmp_path, Keeps(), "ProcessingTime", key_schema_json=schema_json(key="string"))
    plan = replace(
        spec.processor.run_plan,
        inputs=EpochInputs(InputLayout(("key", "value"), (0,)), tells_time=True),
        shown_time=both_times,
        event_times=EventTimes(index=None, delays_ms=(), policy="min", drops_late=False),
    )
    spec = replace(spec, processor=replace(spec.processor, run_plan=plan))
    with Maintenance() as maintenance:
        host = Host(spec).open(maintenance)
        run(host, 0, 1000, [("a", 1), ("b", 2), ("c", 3)])
        run(host, 1, 1050, [("b", 4)])
        run(host, 2, 1099, [("c", -1)])
        run(host, 3, 1100, [])
        run(host, 4, 1120, [("b", 2), ("d", 5)])
        run(host, 5, 1150, [])
        run(host, 6, 5000, [("a", 6)])
        yield host


def run(host: Host, epoch: int, batch_ms: int, rows: list[tuple[str, int]]) -> None:
    table = table_of(rows, 8)
    control = {"key": [None], "value": [None], "_cowstate_key_group": [control_key_group(0)]}
    table = pa.concat_tables([table, pa.table(control, schema=table.schema)])
    times = pa.array([batch_ms] * table.num_rows, pa.int64())
    host.run(epoch, table.append_column("_cowstate_batch_ms", times))


def reader(host: Host, state: str) -> StateReader:
    return open_store(host.request(0, 0).store_url, state=state)


SHOWN = {"last": "n", "all": "list_value", "counts": "map_value"}


def plain(state: str, value: Any) -> Any:
    if state == "last":
        return value
    if state == "all":
        return [element["n"] for element in value]
    return sorted(key["n"] for key, _ in value)


def content(table: pa.Table, state: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return {row["key"]: plain(state, row[SHOWN[state]]) for row in rows}


LAST = [
    {"a": 1, "b": 2, "c": 3},
    {"a": 1, "b": 4, "c": 3},
    {"a": 1, "b": 4},
    {"b": 4},
    {"b": 2, "d": 5},
    {"b": 2, "d": 5},
    {"a": 6},
]
ALL = [
    {"a": [1], "b": [2], "c": [3]},
    {"a": [1], "b": [2, 4], "c": [3]},
    {"a": [1], "b": [2, 4]},
    {"b": [4]},
    {"b": [4, 2], "d": [5]},
    {"b": [2], "d": [5]},
    {"a": [6]},
]
COUNTS = [{key: sorted(held) for key, held in epoch.items()} for epoch in ALL]
CONTENTS: dict[str, list[dict[str, Any]]] = {"last": LAST, "all": ALL, "counts": COUNTS}


@pytest.mark.parametrize("state", ["last", "all", "counts"])
def test_a_version_has_what_has_not_expired_at_its_time(host: Host, state: str) -> None:
    for epoch, expected in enumerate(CONTENTS[state]):
        assert content(reader(host, state).read(epoch), state) == expected
    assert SHOWN[state] in reader(host, state).schema().names
    assert len(reader(host, state).schema().names) == 2


def expected_changes(before: dict[str, Any], after: dict[str, Any]) -> set[tuple[str, str, str]]:
    changes = set()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old is None:
            changes.add(("insert", key, repr(new)))
        elif new is None:
            changes.add(("delete", key, repr(old)))
        else:
            changes |= {("update_preimage", key, repr(old)), ("update_postimage", key, repr(new))}
    return changes


@pytest.mark.parametrize("state", ["last", "all", "counts"])
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.long
def test_what_expires_is_deleted_by_the_version_whose_time_it_is(
    host: Host, state: str, remembers: bool
) -> None:
    contents = CONTENTS[state]
    history = reader(host, state)._history
    changed_by = StateReader(history, StateCache() if remembers else None)
    for start in (None, *range(len(contents) - 1)):
        for end in range(0 if start is None else start + 1, len(contents)):
            rows: list[dict[str, Any]] = changed_by.changes(start, end).to_pylist()
            told: dict[int, set[tuple[str, str, str]]] = {}
            for row in rows:
                value = repr(plain(state, row[SHOWN[state]]))
                change = (row["_change_type"], row["key"], value)
                told.setdefault(row["_commit_version"], set()).add(change)
            first = 0 if start is None else start + 1
            expected = {
                epoch: expected_changes(contents[epoch - 1] if epoch else {}, contents[epoch])
                for epoch in range(first, end + 1)
            }
            assert told == {epoch: changes for epoch, changes in expected.items() if changes}


def test_a_live_view_shows_what_has_not_expired(host: Host) -> None:
    with live_view(host.request(0, 0).store_url, state="last", poll_seconds=0.01) as view:
        assert {key: value["n"] for key, value in view.snapshot()} == {"a": 6}


def test_timers_are_no_state_of_the_processor_and_are_read_by_name(host: Host) -> None:
    assert reader(host, "$procTimers").read().num_rows == 0
    assert reader(host, "$procTimers").schema().names == ["key", "expiry_ms"]
