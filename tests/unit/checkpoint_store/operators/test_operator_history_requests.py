"""A reader of an operator's store reads each object once, because objects never change (I1)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from checkpoint_store.epochs import published_objects
from checkpoint_store.objects.object_store import LocalObjectStore, ObjectStore
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.runs import run_starts
from checkpoint_store.state_reader import StateReader
from tests.support.operators.keyed_operator import KEYED, KeyedOperator
from tests.support.operators.scripted_operator import METADATA, ScriptedOperator
from tests.support.operators.taken_back import take_back
from tests.support.stores.fake_object_store import DictObjectStore


def history_of(store: ObjectStore) -> OperatorHistory:
    return OperatorHistory(store, METADATA, None)


def test_a_manifest_is_read_once_however_often_it_is_asked_for(objects: DictObjectStore) -> None:
    operator = ScriptedOperator(objects)
    for epoch in range(100):
        operator.run_epoch(epoch, {epoch % 8: epoch})
    history = history_of(objects)
    history.versions()
    objects.reads.clear()
    objects.listings.clear()
    for _ in range(3):
        for epoch in range(100):
            assert history.at(epoch).info.version == epoch
            assert history.checkpoint_at(epoch).epoch == epoch
    assert len(objects.reads) == len(set(objects.reads)) == 100
    assert objects.listings == []
    operator.run_epoch(100, {0: 100})
    objects.reads.clear()
    history.versions()
    history.at(99)
    history.at(100)
    assert len(objects.reads) == 1


def test_barriers_of_an_epoch_without_manifest_are_read_once(objects: DictObjectStore) -> None:
    operator = ScriptedOperator(objects, parallelism=4)
    operator.run_epoch(0, {0: 1})
    base = operator.checkpoints.latest_before(1)
    for subtask in range(4):
        operator.run_subtask(1, subtask, {subtask * 2: 2}, base)
    history = history_of(objects)
    objects.reads.clear()
    for _ in range(5):
        assert history.versions() == [0, 1]
        assert history.at(1).info.version == 1
    assert len(objects.reads) == 4


def test_a_reader_of_changes_reads_manifests_once_for_all_calls(objects: DictObjectStore) -> None:
    operator = KeyedOperator(objects)
    for epoch in range(20):
        operator.run_epoch(epoch, {1: epoch})
    reader = StateReader(OperatorHistory(objects, KEYED, None))
    objects.reads.clear()
    for _ in range(3):
        reader.changes(10, 19, preimages=False)
    manifests = [name for name in objects.reads if name.startswith("manifests/")]
    assert len(manifests) == len(set(manifests)) <= 10


def test_what_is_remembered_is_bounded_by_number_and_by_files(
    objects: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = ScriptedOperator(objects, parallelism=2)
    for epoch in range(200):
        operator.run_epoch(epoch, {0: epoch, 7: epoch}, "snapshot")

    def remembered_after_all() -> OperatorHistory:
        history = history_of(objects)
        for epoch in range(200):
            history.at(epoch)
        return history

    assert len(remembered_after_all().published._manifests) == 128
    monkeypatch.setattr(published_objects, "_REMEMBERED_HANDLES", 20)
    history = remembered_after_all()
    assert len(history.published._manifests) == 10, "each names two files"
    objects.reads.clear()
    history.at(199)
    assert objects.reads == []
    monkeypatch.setattr(published_objects, "_REMEMBERED_HANDLES", 1)
    history = remembered_after_all()
    objects.reads.clear()
    history.at(0)
    history.at(0)
    assert len(objects.reads) == 1, "the last one is remembered, however large"


def test_a_query_that_was_taken_back_and_has_not_gone_on_is_seen_within_a_minute(
    objects: DictObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = ScriptedOperator(objects)
    for epoch in range(4):
        operator.run_epoch(epoch, {0: epoch})
    history = history_of(objects)
    assert history.versions() == [0, 1, 2, 3]
    take_back(objects, 2)
    monkeypatch.setattr(run_starts, "_SECONDS_BETWEEN_LISTINGS", 0.0)
    assert history.versions() == [0, 1]


def test_a_history_pickles(tmp_path: Path) -> None:
    disk = LocalObjectStore(tmp_path / "store")
    ScriptedOperator(disk).run_epoch(0, {0: 1})
    history = history_of(disk)
    assert history.versions() == [0]
    copy = pickle.loads(pickle.dumps(history))
    assert [handle.name for handle in copy.at(0).state] == [
        handle.name for handle in history.at(0).state
    ]
