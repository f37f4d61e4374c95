"""Operators show the right document for each batch, and a run reads a document once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from checkpoint_store.objects.local_object_store import LocalObjectStore
from spark_state.spark.stored.operator_documents import (
    REMEMBERED_BATCHES,
    Document,
    ShownRun,
    documents_of,
)
from spark_state.spark.stored.stored_operators import StoredOperator
from tests.support.operators.counts_operator import CountsOperator
from tests.support.operators.epoch_reports import NOTHING_DONE


def fed(store: Path, epochs: Sequence[int]) -> StoredOperator:
    scripted = CountsOperator(LocalObjectStore(store), "run-1")
    for epoch in epochs:
        scripted.run_epoch(epoch, {epoch: 1})
    return StoredOperator(store.name, str(store))


def shown_run(read: Callable[[Sequence[int]], list[list[Document]]]) -> ShownRun:
    return ShownRun(lambda _key, default: default, read)


def moments(*batches: int) -> list[tuple[int, str]]:
    return [(batch, f"at {batch}") for batch in batches]


def test_what_a_run_has_shown_is_not_read_again_though_the_batch_ran_no_operator(
    tmp_path: Path,
) -> None:
    asked: list[Sequence[int]] = []
    operator = fed(tmp_path / "first", [0])

    def counted(batches: Sequence[int]) -> list[list[Document]]:
        asked.append(batches)
        return documents_of([operator], batches)

    run = shown_run(counted)
    shown = run.documents(moments(0, 1))
    assert run.documents(moments(0, 1)) == shown
    assert run.documents(moments(1, 2, 0))[::2] == shown[::-1]
    assert asked == [[0, 1], [2]]


def test_a_run_looks_again_for_a_store_that_was_away(tmp_path: Path) -> None:
    operators = [StoredOperator("first", str(tmp_path / "first"))]
    run = shown_run(partial(documents_of, operators))
    assert run.documents(moments(0)) == [[]]
    fed(tmp_path / "first", [0])
    (shown,) = run.documents(moments(0))
    assert [document["operatorName"] for document in shown] == ["first"]


def test_more_batches_are_shown_than_are_remembered() -> None:
    def read(batches: Sequence[int]) -> list[list[Document]]:
        return [[{"operatorName": f"of {batch}"}] for batch in batches]

    batches = range(REMEMBERED_BATCHES + 2)
    assert shown_run(read).documents(moments(*batches)) == read(batches)


def test_the_states_that_an_epoch_deleted_are_shown_until_the_next_epoch(tmp_path: Path) -> None:
    scripted = CountsOperator(LocalObjectStore(tmp_path), "run-1")
    for epoch, states_deleted in ((0, 1), (1, 3), (3, 0)):
        scripted.report = replace(NOTHING_DONE, states_deleted=states_deleted)
        scripted.run_epoch(epoch, {epoch: 1})
    shown = documents_of([StoredOperator("first", str(tmp_path))], range(4))
    metrics = [document["customMetrics"] for (document,) in shown]
    assert [told.get("numDeletedStateVars") for told in metrics] == [2, 6, 6, 0]
