"""A new query begins with the state of another query's operator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoint_store.state_reader import open_store
from spark_state.errors import ConfigurationError
from spark_state.subtasks.epoch_request import RestoreSource
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.operator_states import NotesValues
from tests.support.operators.subtasks import KEY_SCHEMA, Host, operator

ROWS = [("a", 1), ("b", 5)]


@pytest.fixture
def old(tmp_path: Path, maintenance: Maintenance) -> Host:
    """The host of an old query after four epochs."""
    host = Host(operator(tmp_path / "old", key_schema_json=KEY_SCHEMA)).open(maintenance)
    for epoch in range(3):
        host.epoch(epoch, ROWS)
    host.epoch(7, [("c", 9)])
    return host


def begun(tmp_path: Path, maintenance: Maintenance, epoch: int = 7, **changes: object) -> Host:
    """Open a host of a new query that restores from the old query at `epoch`."""
    source = RestoreSource(str(tmp_path / "old" / "query" / "totals"), epoch)
    spec = operator(tmp_path / "new", key_schema_json=KEY_SCHEMA, restore_from=source, **changes)
    return Host(spec, run_id="run-2").open(maintenance)


def test_it_goes_on_from_the_epoch_and_does_not_need_the_old_store_any_more(
    tmp_path: Path, maintenance: Maintenance, old: Host
) -> None:
    new = begun(tmp_path, maintenance)
    assert new.epoch(0, [("a", 1)]) == {"a": (4, 4)}
    shutil.rmtree(tmp_path / "old")
    assert new.epoch(1, [("b", 5)], attempt=5) == {"b": (4, 20)}
    again = begun(tmp_path, maintenance)
    assert again.epoch(2, [("a", 1), ("b", 5), ("c", 9)], attempt=6) == {
        "a": (5, 5),
        "b": (5, 25),
        "c": (2, 18),
    }
    rows = open_store(str(tmp_path / "new" / "query" / "totals")).read(0).to_pylist()
    assert {row["key"] for row in rows} == {"a", "b", "c"}


def test_an_earlier_epoch_may_be_chosen(
    tmp_path: Path, maintenance: Maintenance, old: Host
) -> None:
    assert begun(tmp_path, maintenance, epoch=1).epoch(0, [("a", 1), ("c", 1)]) == {
        "a": (3, 3),
        "c": (1, 1),
    }


def test_a_first_epoch_that_runs_again_begins_with_the_same(
    tmp_path: Path, maintenance: Maintenance, old: Host
) -> None:
    new = begun(tmp_path, maintenance)
    first = new.epoch(0, ROWS)
    assert new.epoch(0, ROWS, attempt=5) == first == {"a": (4, 4), "b": (4, 20)}
    assert new.epoch(1, ROWS, attempt=6) == {"a": (5, 5), "b": (5, 25)}


def test_another_parallelism_takes_each_key_once(
    tmp_path: Path, maintenance: Maintenance, old: Host
) -> None:
    rows = [(key, 0) for key in "abc"]
    emitted: dict[str, tuple[int, int]] = {}
    for subtask in range(2):
        host = begun(tmp_path, maintenance, parallelism=2)
        host = Host(host.spec, subtask=subtask, run_id="run-2").open(maintenance)
        emitted |= host.epoch(0, rows)
    assert emitted == {"a": (4, 3), "b": (4, 15), "c": (2, 9)}


def test_an_epoch_that_is_gone_is_an_error(
    tmp_path: Path, maintenance: Maintenance, old: Host
) -> None:
    with pytest.raises(ConfigurationError, match=r"epoch 5 of .*/old/query/totals, which"):
        begun(tmp_path, maintenance, epoch=5).epoch(0, ROWS)


def test_a_query_that_has_lost_its_own_state_does_not_begin_again(
    tmp_path: Path, maintenance: Maintenance, old: Host
) -> None:
    with pytest.raises(ConfigurationError, match="holds no state of the epochs before"):
        begun(tmp_path, maintenance).epoch(3, ROWS)


def test_operator_state_is_taken_over_too(tmp_path: Path, maintenance: Maintenance) -> None:
    spec = operator(tmp_path / "old", NotesValues(), key_schema_json=KEY_SCHEMA)
    before = Host(spec).open(maintenance)
    before.epoch(0, ROWS)
    noted = before.epoch(1, ROWS)
    source = RestoreSource(str(tmp_path / "old" / "query" / "totals"), 0)
    new_spec = operator(
        tmp_path / "new", NotesValues(), key_schema_json=KEY_SCHEMA, restore_from=source
    )
    new = Host(new_spec, run_id="run-2").open(maintenance)
    assert new.epoch(0, ROWS) == noted
    shutil.rmtree(tmp_path / "old")
    again = Host(new_spec, run_id="run-3").open(maintenance)
    assert again.epoch(1, ROWS, attempt=9) != noted
