"""Deletions follow a safe order, and the orphan sweep deletes only unneeded old objects."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpoint_store.objects.deletion import (
    IsNeeded,
    delete_in_turn,
    sweep_orphans,
    time_of_store,
)
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_info import UNPUBLISHED, ObjectInfo
from tests.support.stores.fake_object_store import DictObjectStore


@dataclass
class Documents:
    """Objects whose orphans lie below `files/`, with the needed `names`. While the sweep asks for
    the needed names, a writer adds `named_meanwhile`."""

    objects: DictObjectStore
    names: set[str]
    named_meanwhile: set[str] = field(default_factory=set)

    def may_be_orphans(self) -> Iterable[ObjectInfo]:
        return self.objects.list("files")

    def needed(self) -> IsNeeded:
        for name in self.named_meanwhile:
            self.objects.put(name, b"new")
        return self.names.__contains__


@pytest.fixture
def objects() -> DictObjectStore:
    objects = DictObjectStore()
    for name in ("files/b", "files/a", "files/needed", "others/c", f"{UNPUBLISHED}/d"):
        objects.put(name, b"")
    return objects


def test_orphans_and_unpublished_objects_go_after_a_grace_period(objects: DictObjectStore) -> None:
    documents = Documents(objects, {"files/needed"})
    assert sweep_orphans(objects, documents, 100.0, now=100.0) == []
    assert sweep_orphans(objects, documents, 100.0, now=100.5) == [
        f"{UNPUBLISHED}/d",
        "files/a",
        "files/b",
    ]
    assert objects.objects.keys() == {"files/needed", "others/c"}


def test_a_clock_ahead_follows_the_store_s_clock(objects: DictObjectStore, tmp_path: Path) -> None:
    day = 86_400.0
    objects.now = 1000.0
    before = objects.copy()
    assert time_of_store(objects, 1000.0 + day) == 1000.0
    assert time_of_store(objects, 900.0) == 900.0
    objects.now = None
    assert time_of_store(objects, 900.0) == 900.0
    assert objects.objects == before.objects
    disk, now = LocalObjectStore(tmp_path), time.time()
    assert time_of_store(disk, now + day) < now + day / 2
    assert list(disk.list(UNPUBLISHED)) == []
    documents = Documents(objects, {"files/needed"})
    assert sweep_orphans(objects, documents, day / 2, time_of_store(before, 1000.0 + day)) == []


def test_an_object_that_comes_while_the_sweep_looks_stays(objects: DictObjectStore) -> None:
    documents = Documents(objects, {"files/needed"}, {"files/new"})
    assert "files/new" not in sweep_orphans(objects, documents, 0.0, now=1.0)
    assert "files/new" in objects.objects


def test_an_object_of_unknown_age_stays(objects: DictObjectStore) -> None:
    objects.now = None
    objects.put("files/unknown", b"")
    swept = sweep_orphans(objects, Documents(objects, set()), 0.0, now=1e12)
    assert swept == [f"{UNPUBLISHED}/d", "files/a", "files/b", "files/needed"]


def test_the_number_of_objects_is_told_and_no_empty_request_made() -> None:
    requests: list[Sequence[str]] = []

    class Counting(DictObjectStore):
        def delete(self, names: Sequence[str]) -> None:
            requests.append(names)

    assert delete_in_turn(Counting(), ["a", "b"], [], ["c"]) == 3
    assert requests == [["a", "b"], ["c"]]
