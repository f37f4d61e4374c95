"""The contract of object stores, run against each kind of store.

The kinds are memory, disk, S3 over HTTP, a file system without conditional create, a file system
with hosts, and, where their emulators are installed, Azure Blob Storage and Google Cloud Storage.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from checkpoint_store.errors import ObjectExistsError, StoreAccessError
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.testing import ObjectStoreContract
from spark_state.testing.object_store_contract import names_in
from tests.support.operators.counts_operator import CountsOperator, state_before
from tests.support.stores import hosted_file_system  # noqa: F401  registers hosted://
from tests.support.stores.cloud_servers import CloudServer, azurite, fake_gcs
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.moto_s3 import S3Server, moto_s3
from tests.support.stores.stale_store import ListingsOfAMinuteAgo


class UnconditionalFileSystem(MemoryFileSystem):
    """A file system that overwrites with any `mode`, as some file systems do."""

    protocol = "unconditional"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value, mode="overwrite", **options)


class WholeFileSystem(MemoryFileSystem):
    """A file system that returns a whole object for a range, as some HTTP servers do."""

    protocol = "whole"

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        return bytes(super().cat_file(path, **options))


class StrictFileSystem(MemoryFileSystem):
    """A file system that refuses a range beyond an object's end, with an error of its own."""

    protocol = "strict"

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        data = bytes(super().cat_file(path, **options))
        if start is not None and start >= len(data):
            raise RangeNotSatisfiableError(f"{path} has {len(data)} bytes")
        return data[start:end]


class RangeNotSatisfiableError(Exception):
    """A client's own error."""


for client in (UnconditionalFileSystem, WholeFileSystem, StrictFileSystem):
    client.store, client.pseudo_dirs = {}, [""]
    fsspec.register_implementation(client.protocol, client, clobber=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with moto_s3() as server:
        yield server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="module")
def gcs() -> Iterator[CloudServer]:
    with fake_gcs() as server:
        yield server


def store_of(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> ObjectStore:
    """An empty store of a kind."""
    if kind in ("s3", "azure", "gcs"):
        server: S3Server | CloudServer = request.getfixturevalue(kind)
        return open_object_store(f"{server.new_bucket()}/some/store", server.storage_options)
    if kind == "file":
        return open_object_store(f"file://{tmp_path}/some/store")
    if kind == "dict":
        return DictObjectStore()
    if kind == "stale":
        return ListingsOfAMinuteAgo()
    if kind == "retrying":
        return RetryingObjectStore(open_object_store(str(tmp_path / "store")))
    if kind == "hosted":
        return open_object_store(f"hosted://user@{uuid4().hex}:8020/some/store")
    return open_object_store(f"{kind}://{uuid4().hex}/store")


class TestObjectStores(ObjectStoreContract):
    """Tests of each kind of store."""

    @pytest.fixture(params=["memory", "file", "s3", "azure", "gcs", "retrying", "strict", "hosted"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def store(self, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> ObjectStore:
        return store_of(kind, tmp_path, request)

    def test_another_client_sees_at_once_what_was_put(self, store: ObjectStore) -> None:
        other: ObjectStore = pickle.loads(pickle.dumps(store))
        assert names_in(other, "d") == set()
        store.put("d/new", b"x")
        assert names_in(other, "d") == {"d/new"}
        assert other.get("d/new") == b"x"


class TestStoresOfOnePathOnSeveralHosts:
    """Tests of stores whose URLs differ only in the authority."""

    @pytest.mark.parametrize("other", ["me@{}2:8020", "you@{}:8020", "me@{}:9000", "me@{}"])
    def test_they_do_not_share_objects(self, other: str) -> None:
        host = uuid4().hex
        store = open_object_store(f"hosted://me@{host}:8020/some/store")
        store.put("a/b", b"x")
        elsewhere = open_object_store(f"hosted://{other.format(host)}/some/store")
        assert list(elsewhere.list("a")) == []
        again = open_object_store(f"hosted://{host}/some/store", {"user": "me", "port": 8020})
        assert again.get("a/b") == b"x"

    def test_an_option_that_contradicts_the_url_is_refused(self) -> None:
        with pytest.raises(StoreAccessError, match="have another host than the URL"):
            open_object_store("hosted://here/store", {"host": "there"})

    @pytest.mark.parametrize(
        ("url", "ignored"),
        [("hosted://pool;user@here/store", "pool;user"), ("hosted://here:http/store", "here:http")],
    )
    def test_a_part_of_a_url_that_a_client_ignores_is_refused(self, url: str, ignored: str) -> None:
        with pytest.raises(StoreAccessError, match=f"HostedFileSystem. ignores '{ignored}' in"):
            open_object_store(url)

    def test_a_url_whose_end_is_no_path_is_refused(self) -> None:
        with pytest.raises(StoreAccessError, match=r"without \? and #"):
            open_object_store("hosted://here/store?replication=1")

    @pytest.mark.parametrize("password", ["hunter2", "hunter/2", ""])
    def test_a_password_in_a_url_is_refused_and_not_shown(self, password: str) -> None:
        with pytest.raises(StoreAccessError, match="has a password") as refused:
            open_object_store(f"hosted://me:{password}@here/store")
        assert "hosted://…@here/store" in str(refused.value)


class TestFileSystemsWithoutRanges(TestObjectStores):
    """Tests of file systems that ignore ranges. The stores keep all promises but one: a short
    object looks like a range of itself."""

    @pytest.fixture
    def kind(self) -> str:
        return "whole"

    def test_fewer_bytes_are_read_where_an_object_ends(self, store: ObjectStore) -> None:
        store.put("a/b", b"0123456789")
        assert store.get_range("a/b", 7, 9) == b"789"
        assert store.get_range("a/b", 50, 9) == b""


class TestFileSystemsWithoutConditionalCreate(TestObjectStores):
    """Tests of file systems that always overwrite. The stores keep all promises but one: a taken
    name is not refused. Writers have names of their own (I1), so no writer overwrites."""

    @pytest.fixture
    def kind(self) -> str:
        return "unconditional"

    def test_a_taken_name_is_refused_and_its_object_unchanged(self, store: ObjectStore) -> None:
        store.put("a/b", b"first")
        store.put("a/b", b"second")
        assert store.get("a/b") == b"second"


class TestStoresWithOldListings(ObjectStoreContract):
    """Tests of a network file system with a cache. A client sees its own changes at once."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        return ListingsOfAMinuteAgo(now=time.time())

    def test_others_objects_are_found_and_listed_later(self, store: ListingsOfAMinuteAgo) -> None:
        other = ListingsOfAMinuteAgo(shared=store.shared)
        store.put("d/new", b"x")
        assert other.get("d/new") == b"x"
        assert names_in(other, "d") == set()
        with pytest.raises(ObjectExistsError):
            other.put("d/new", b"y")
        other.refresh()
        assert names_in(other, "d") == {"d/new"}


class TestTheStoreOfTests(ObjectStoreContract):
    """Tests of the store that other tests use. The store keeps the contract, except for the time of
    day."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        return DictObjectStore()

    def test_a_listing_says_when_an_object_was_put(self, store: ObjectStore) -> None:
        store.put("d/one", b"x")
        assert [info.modified for info in store.list("d")] == [0.0]


@pytest.mark.parametrize(
    "kind",
    ["memory", "file", "s3", "azure", "gcs", "unconditional", "retrying", "dict", "stale"],
)
def test_checkpoints_are_completed_retained_and_restored_on_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = store_of(kind, tmp_path, request)
    operator = CountsOperator(store)
    state: dict[int, int] = {}
    for epoch in range(4):
        changes = {epoch: epoch, 7: epoch * 10}
        state |= changes
        assert operator.run_epoch(epoch, changes) is not None
        operator.checkpoints.retain(2)
        assert state_before(store, epoch + 1, parallelism=3) == state
    assert CompletedCheckpointStore(store).runs.register("run-a") == operator.run
    assert CompletedCheckpointStore(store).runs.register("run-b") > operator.run
