"""What every object store promises, run against each kind: memory, disk, S3 over HTTP, and a file
system that knows no conditional create."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from tests.support.fake_object_store import DictObjectStore
from tests.support.moto_s3 import S3Server, moto_s3
from tests.support.scripted_operator import ScriptedOperator, state_before

KINDS = ["memory", "file", "s3", "unconditional", "retrying", "dict"]


class UnconditionalFileSystem(MemoryFileSystem):
    """Overwrites whatever `mode` says, as some file systems do."""

    protocol = "unconditional"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value, mode="overwrite", **options)


fsspec.register_implementation("unconditional", UnconditionalFileSystem, clobber=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with moto_s3() as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> ObjectStore:
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return open_object_store(f"{server.new_bucket()}/some/store", server.storage_options)
    if kind == "file":
        return open_object_store(f"file://{tmp_path}/some/store")
    if kind == "dict":
        return DictObjectStore()
    if kind == "retrying":
        return RetryingObjectStore(open_object_store(str(tmp_path / "store")))
    return open_object_store(f"{kind}://{uuid4().hex}/store")


def names(store: ObjectStore, directory: str) -> set[str]:
    return {info.name for info in store.list(directory)}


def test_what_was_put_is_got(store: ObjectStore) -> None:
    data = bytes(range(256)) * 100
    store.put("a/b/c.bin", data)
    store.put("top.json", b"{}")
    assert store.get("a/b/c.bin") == data
    assert store.get("top.json") == b"{}"


def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    store.put("a/empty", b"")
    assert store.get("a/empty") == b""
    assert names(store, "a") == {"a/empty"}


def test_a_missing_object_is_an_error_that_names_it(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissingError, match="a/none") as caught:
        store.get("a/none")
    assert caught.value.name == "a/none"
    assert caught.value.url == store.url


def test_a_listing_has_names_lengths_and_times_of_one_directory(store: ObjectStore) -> None:
    before = time.time()
    for name, length in {"d/one": 1, "d/two": 2, "d/sub/three": 3, "d2/four": 4, "five": 5}.items():
        store.put(name, b"x" * length)
    listed = {info.name: info.length for info in store.list("d")}
    assert listed == {"d/one": 1, "d/two": 2}
    for info in store.list("d"):
        assert isinstance(store, DictObjectStore) or (
            info.modified is not None and abs(info.modified - before) < 60
        )


def test_directories_are_listed_apart_from_objects(store: ObjectStore) -> None:
    for name in ("d/a/1", "d/a/2", "d/b/1", "d/object", "e/c/1"):
        store.put(name, b"x")
    assert sorted(store.list_directories("d")) == ["d/a", "d/b"]


def test_a_directory_that_never_was_lists_nothing(store: ObjectStore) -> None:
    assert list(store.list("nowhere")) == []
    assert list(store.list_directories("nowhere")) == []
    store.put("a/b", b"x")
    assert list(store.list("a/c")) == []


def test_a_listing_is_never_stale(store: ObjectStore) -> None:
    for number in range(3):
        store.put(f"d/{number}", b"x")
        assert names(store, "d") == {f"d/{n}" for n in range(number + 1)}
    store.delete(["d/1"])
    assert names(store, "d") == {"d/0", "d/2"}


def test_another_client_sees_at_once_what_was_put(store: ObjectStore, kind: str) -> None:
    other: ObjectStore = store if kind == "dict" else pickle.loads(pickle.dumps(store))
    assert names(other, "d") == set()
    store.put("d/new", b"x")
    assert names(other, "d") == {"d/new"}
    assert other.get("d/new") == b"x"


def test_deleting_what_is_gone_does_not_matter(store: ObjectStore) -> None:
    store.put("d/a", b"x")
    store.put("d/b", b"x")
    store.delete(["d/a", "d/none", "nowhere/none"])
    store.delete(["d/a"])
    store.delete([])
    assert names(store, "d") == {"d/b"}


def test_a_directory_is_gone_with_its_last_object(store: ObjectStore) -> None:
    store.put("epochs/1/a", b"x")
    store.put("epochs/2/a", b"x")
    store.delete(["epochs/1/a"])
    assert list(store.list_directories("epochs")) == ["epochs/2"]
    store.put("epochs/1/b", b"x")
    assert names(store, "epochs/1") == {"epochs/1/b"}


def test_a_taken_name_is_refused_and_its_object_unchanged(store: ObjectStore, kind: str) -> None:
    store.put("a/b", b"first")
    if kind == "unconditional":
        store.put("a/b", b"second")
        return
    with pytest.raises(ObjectExistsError, match="a/b"):
        store.put("a/b", b"second")
    assert store.get("a/b") == b"first"


def test_one_object_serves_many_threads(store: ObjectStore) -> None:
    def round_trip(number: int) -> bytes:
        store.put(f"d/{number}", str(number).encode())
        return store.get(f"d/{number}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(round_trip, range(40))) == [str(n).encode() for n in range(40)]
    assert len(names(store, "d")) == 40
    store.delete([f"d/{number}" for number in range(40)])
    assert names(store, "d") == set()


def test_checkpoints_are_completed_retained_and_restored_on_it(store: ObjectStore) -> None:
    operator = ScriptedOperator(store)
    state: dict[int, int] = {}
    for epoch in range(4):
        changes = {epoch: epoch, 7: epoch * 10}
        state |= changes
        assert operator.run_epoch(epoch, changes) is not None
        operator.checkpoints.retain(2)
        assert state_before(store, epoch + 1, parallelism=3) == state
    assert CompletedCheckpointStore(store).register_run("run-a") == operator.run
    assert CompletedCheckpointStore(store).register_run("run-b") > operator.run
