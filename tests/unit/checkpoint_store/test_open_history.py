"""A URL opens as a table, an operator's store or a checkpoint, or is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_store.errors import (
    NotAStoreError,
    ObjectMissingError,
    StateNotFoundError,
    StoreAccessError,
)
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.open_history import open_history
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.state_reader import open_store
from checkpoint_store.tables.table_history import TableHistory
from tests.support.operators.counts_operator import METADATA as OPERATOR
from tests.support.operators.counts_operator import CountsOperator
from tests.support.tables.table_rows_of import METADATA, ScriptedTable, by_key, put


def table_at(path: Path) -> str:
    ScriptedTable(LocalObjectStore(path)).commit(0, put(1, "a", 1))
    return str(path)


def operator_at(path: Path) -> str:
    CountsOperator(LocalObjectStore(path)).run_epoch(0, {0: 1})
    return str(path)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("state", [None, "row"])
def test_a_table(tmp_path: Path, scheme: str, state: str | None) -> None:
    url = scheme + table_at(tmp_path / "table")
    history = open_history(url, state=state)
    assert isinstance(history, TableHistory)
    assert history.metadata == METADATA
    assert history.versions() == [0]
    assert by_key(open_store(url, state=state).read()) == {1: ("a", 1)}


def test_a_table_without_versions(tmp_path: Path) -> None:
    ScriptedTable(LocalObjectStore(tmp_path))
    assert open_history(str(tmp_path)).versions() == []


def test_a_table_has_no_state_but_its_rows(tmp_path: Path) -> None:
    with pytest.raises(StateNotFoundError, match="no state 'count'; its states are row"):
        open_history(table_at(tmp_path), state="count")


@pytest.mark.parametrize("state", [None, "count"])
def test_the_store_of_an_operator(tmp_path: Path, state: str | None) -> None:
    history = open_history(operator_at(tmp_path), state=state)
    assert isinstance(history, OperatorHistory)
    assert (history.metadata, history.state) == (OPERATOR, state)
    assert history.versions() == [0]


def test_a_root_of_stores_is_an_error_that_lists_them(tmp_path: Path) -> None:
    table_at(tmp_path / "totals")
    operator_at(tmp_path / "query-1" / "counts")
    operator_at(tmp_path / "query-1" / "sums")
    (tmp_path / "query-2" / "nothing").mkdir(parents=True)
    with pytest.raises(NotAStoreError) as caught:
        open_history(str(tmp_path))
    assert caught.value.url == f"file://{tmp_path}"
    assert sorted(caught.value.below) == ["query-1/counts", "query-1/sums", "totals"]
    for below in caught.value.below:
        assert below in str(caught.value)
        assert open_history(f"{tmp_path}/{below}").versions() == [0]


def test_a_store_whose_description_is_gone_is_listed_and_says_so(tmp_path: Path) -> None:
    operator_at(tmp_path / "query" / "counts")
    (tmp_path / "query" / "counts" / "store.json").unlink()
    with pytest.raises(NotAStoreError) as caught:
        open_history(str(tmp_path))
    assert caught.value.below == ("query/counts",)
    with pytest.raises(ObjectMissingError, match=r"store\.json"):
        open_history(f"{tmp_path}/query/counts")


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_without_any_store_is_an_error(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "some" / "files").mkdir(parents=True)
        (tmp_path / "some" / "files" / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        NotAStoreError, match=r"no table\.json, no store\.json and nothing in commits/"
    ) as caught:
        open_history(str(tmp_path if there else tmp_path / "nothing"))
    assert caught.value.below == ()


def test_a_url_that_cannot_be_reached_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for url in (f"{file}/table", "nosuch://bucket/table"):
        with pytest.raises(StoreAccessError, match=url):
            open_history(url)
