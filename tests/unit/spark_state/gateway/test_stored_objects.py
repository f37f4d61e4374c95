"""The gateway answers requests about objects in stores."""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpoint_store.errors import StoreAccessError, StoreUnavailableError
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from spark_state.gateway import stored_objects
from spark_state.gateway.frames import FORMAT, Frame
from spark_state.gateway.stored_objects import (
    GRACE_SECONDS,
    StoredObjects,
    opened_objects,
    with_connections,
)
from tests.support.sessions.spark_session import CREDENTIALS
from tests.support.stores import hosted_file_system  # noqa: F401  registers hosted://
from tests.support.stores.fake_object_store import (
    DictObjectStore,
    FlakyObjectStore,
    MisbehavingObjectStore,
    RefusingObjectStore,
)
from tests.support.stores.moto_s3 import moto_s3


def put(objects: StoredObjects, name: str, data: bytes) -> Frame:
    return objects.answer(Frame({"do": "put", "name": name}, data))


def get(objects: StoredObjects, name: str, start: int, length: int) -> Frame:
    return objects.answer(Frame({"do": "get", "name": name, "start": start, "length": length}))


@pytest.fixture
def store() -> DictObjectStore:
    return DictObjectStore()


@pytest.fixture
def objects(store: DictObjectStore) -> StoredObjects:
    return StoredObjects(store)


def test_what_is_put_is_got_and_listed_until_it_is_deleted(objects: StoredObjects) -> None:
    assert put(objects, "state/0/1/a.arrow", b"0123456789") == Frame()
    assert put(objects, "state/0/1/b.arrow", b"") == Frame()
    assert get(objects, "state/0/1/a.arrow", 2, 3) == Frame(body=b"234")
    assert get(objects, "state/0/1/a.arrow", 7, 100).body == b"789"
    assert get(objects, "state/0/1/a.arrow", 50, 1).body == b""
    everything = Frame({"do": "list", "directory": "state/0/1", "prefix": ""})
    listed = objects.answer(everything).header["objects"]
    assert sorted(listed) == [["a.arrow", 10], ["b.arrow", 0]]
    of_a = objects.answer(Frame({"do": "list", "directory": "state/0/1", "prefix": "a"}))
    assert of_a.header["objects"] == [["a.arrow", 10]]
    names = ["state/0/1/a.arrow", "state/0/1/never.arrow"]
    assert objects.answer(Frame({"do": "delete", "names": names})) == Frame()
    assert objects.answer(everything).header["objects"] == [["b.arrow", 0]]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (b"first", b"other"),
        (b"first", b"firs"),
        (b"first", b"first!"),
        (b"first", b""),
        (b"", b"1"),
    ],
)
def test_a_taken_name_is_refused_to_other_bytes_and_a_put_made_again_finds_its_own_object(
    objects: StoredObjects, first: bytes, other: bytes
) -> None:
    assert put(objects, "a", first) == Frame()
    assert put(objects, "a", other).header["error"] == "exists"
    assert get(objects, "a", 0, 5).body == first
    assert put(objects, "a", first) == Frame()


@pytest.mark.parametrize("mapped_from", [1, 1 << 20])
def test_an_object_is_put_from_a_local_file_also_again(tmp_path: Path, mapped_from: int) -> None:
    """A mapped file is not a bytes object, but must be compared like bytes."""
    objects = StoredObjects(open_object_store(str(tmp_path / "store")))
    file = tmp_path / "object"
    file.write_bytes(b"0123456789")
    header = {"do": "put", "name": "a", "file": str(file)}
    with mock.patch.object(stored_objects, "_MAPPED_BYTES", mapped_from):
        assert objects.answer(Frame(header)) == Frame()
        assert objects.answer(Frame(header)) == Frame()
        file.write_bytes(b"9876543210")
        assert objects.answer(Frame(header)).header["error"] == "exists"
    assert get(objects, "a", 0, 10).body == b"0123456789"


@pytest.mark.parametrize("mapped_from", [1, 1 << 20])
def test_a_put_whose_answer_the_store_lost_has_been_made(
    store: DictObjectStore, tmp_path: Path, mapped_from: int
) -> None:
    file = tmp_path / "object"
    file.write_bytes(b"0123456789")
    losing = FlakyObjectStore(store, [OSError("reset")], after_effect=True)
    objects = StoredObjects(RetryingObjectStore(losing, sleep=lambda _: None))
    header = {"do": "put", "name": "a", "file": str(file)}
    with mock.patch.object(stored_objects, "_MAPPED_BYTES", mapped_from):
        assert objects.answer(Frame(header)) == Frame()
    assert losing.calls == 3
    assert not losing.errors


def test_answers_of_the_store_that_are_cut_are_asked_for_again(store: DictObjectStore) -> None:
    put(StoredObjects(store), "a", bytes(range(200)))
    cutting = MisbehavingObjectStore(store, random.Random(3), truncating=0.4)
    objects = StoredObjects(cutting)
    for start in range(0, 150, 3):
        assert get(objects, "a", start, 50).body == bytes(range(start, start + 50))
    cutting.truncating = 1.0
    answer = get(objects, "a", 0, 200)
    assert answer.header["error"] == "failed"
    assert "cut short" in answer.header["message"]


def test_a_put_finds_its_own_object_through_answers_that_are_cut(store: DictObjectStore) -> None:
    cutting = MisbehavingObjectStore(store, random.Random(3), truncating=0.5)
    objects = StoredObjects(cutting)
    for number in range(30):
        assert put(objects, f"{number}", bytes(range(100))) == Frame()
        answer = put(objects, f"{number}", bytes(range(100)))
        assert answer.header.get("error") in (None, "failed")


def test_a_missing_object_is_told_apart_from_a_store_that_fails(store: DictObjectStore) -> None:
    assert get(StoredObjects(store), "a", 0, 1).header["error"] == "missing"
    errors: dict[str, Exception] = {
        "access": StoreAccessError("dict://store", "no permission"),
        "unavailable": StoreUnavailableError("dict://store", "writing a", 120.0, "EIO"),
        "failed": ZeroDivisionError("a bug"),
    }
    for kind, error in errors.items():
        refusing = RefusingObjectStore(store, lambda *_, error=error: error)  # type: ignore[misc]
        answer = put(StoredObjects(refusing), "a", b"x")
        assert answer.header["error"] == kind
        assert str(error) in answer.header["message"]


@pytest.mark.parametrize("header", [{}, {"do": "rename"}, {"do": "get"}])
def test_a_request_that_is_none_is_answered_too(
    objects: StoredObjects, header: dict[str, Any]
) -> None:
    assert objects.answer(Frame(header)).header["error"] == "failed"


def test_what_killed_writers_left_goes_after_a_day(store: DictObjectStore) -> None:
    for name, age in {"old": GRACE_SECONDS + 1, "young": GRACE_SECONDS - 1}.items():
        store.now = 1e9 - age
        store.put(f"{UNPUBLISHED}/{name}", b"half")
    store.put("state/0/0/published", b"whole")
    store.now = 1e9
    objects = StoredObjects(store, now=lambda: 1e9)
    assert objects.answer(Frame({"do": "sweep"})) == Frame()
    assert sorted(store.objects) == [f"{UNPUBLISHED}/young", "state/0/0/published"]


def test_a_store_is_opened_for_a_jar_of_the_same_release_only(tmp_path: Path) -> None:
    header = {"do": "open", "url": str(tmp_path), "options": {}, "retry_seconds": 5}
    objects = opened_objects(Frame({**header, "format": FORMAT}))
    assert put(objects, "a", b"x") == Frame()
    with pytest.raises(ValueError, match="install the same release on all machines"):
        opened_objects(Frame({**header, "format": FORMAT + 1}))


def test_hosts_of_urls_tell_stores_apart() -> None:
    header = {"do": "open", "options": {}, "retry_seconds": 5, "format": FORMAT}
    here, there = (
        opened_objects(Frame({**header, "url": f"hosted://{host}/gateway/state"}))
        for host in ("first", "second")
    )
    assert put(here, "a", b"x") == Frame()
    assert (
        there.answer(Frame({"do": "list", "directory": "", "prefix": ""})).header["objects"] == []
    )
    header |= {"url": "hosted://first/state", "options": {"host": "second"}}
    with pytest.raises(StoreAccessError, match="have another host than the URL"):
        opened_objects(Frame(header))


def test_a_store_on_s3_has_a_connection_for_each_of_many_stores() -> None:
    given = {"endpoint_url": "http://s3", "config_kwargs": {"signature_version": "s3v4"}}
    options = with_connections("s3://bucket/state", given)
    assert options["config_kwargs"] == {"max_pool_connections": 64, "signature_version": "s3v4"}
    assert options["endpoint_url"] == "http://s3"
    assert with_connections("file:///tmp/state", {}) == {}


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("mebibytes", [99, 101])
def test_a_large_object_goes_to_s3_whole_and_a_larger_one_in_parts_of_a_mapped_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mebibytes: int
) -> None:
    """The S3 client splits an object of 100 MiB or more into parts, and creates the whole object
    once."""
    for variable, value in CREDENTIALS.items():
        monkeypatch.setenv(variable, value)
    file = tmp_path / "object"
    block = random.Random(1).randbytes(1 << 20)
    with file.open("wb") as stream:
        for shift in range(mebibytes):
            stream.write(block[shift:] + block[:shift])
    with moto_s3() as s3:
        options = {"endpoint_url": s3.endpoint}
        header = {"do": "open", "format": FORMAT, "url": s3.new_bucket(), "options": options}
        objects = opened_objects(Frame({**header, "retry_seconds": 60}))
        put = Frame({"do": "put", "name": "state/0/0/large", "file": str(file)})
        assert (objects.answer(put), objects.answer(put)) == (Frame(), Frame())
        stored = get(objects, "state/0/0/large", 0, 1 << 30).body
        assert sha256(stored).digest() == sha256(file.read_bytes()).digest()
        file.write_bytes(block)
        assert objects.answer(put).header["error"] == "exists"
