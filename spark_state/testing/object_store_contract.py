"""Contract of an object store, as tests."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from checkpoint_store.errors import ObjectExistsError, ObjectMissingError
from checkpoint_store.objects.object_store import ObjectStore


def names_in(store: ObjectStore, directory: str) -> set[str]:
    """Return the names of the objects directly in a directory."""
    return {info.name for info in store.list(directory)}


class ObjectStoreContract:
    """Tests for every object store. Derive a class with a fixture `store`: an empty store for each
    test."""

    def test_what_was_put_is_got(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 100
        store.put("a/b/c.bin", data)
        store.put("top.json", b"{}")
        assert store.get("a/b/c.bin") == data
        assert store.get("top.json") == b"{}"

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        store.put("a/empty", b"")
        assert store.get("a/empty") == b""
        assert names_in(store, "a") == {"a/empty"}

    def test_a_missing_object_is_an_error_that_names_it(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissingError, match="a/none") as caught:
            store.get("a/none")
        assert caught.value.name == "a/none"
        assert caught.value.url == store.url

    def test_some_bytes_are_read_of_an_object(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 100
        store.put("a/b.bin", data)
        for start, length in ((0, 1), (0, len(data)), (300, 1000), (len(data) - 5, 5)):
            assert store.get_range("a/b.bin", start, length) == data[start : start + length]

    def test_fewer_bytes_are_read_where_an_object_ends(self, store: ObjectStore) -> None:
        store.put("a/b", b"0123456789")
        assert store.get_range("a/b", 7, 10) == b"789"
        assert store.get_range("a/b", 10, 1) == b""
        assert store.get_range("a/b", 50, 10) == b""

    def test_a_missing_object_has_no_bytes(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissingError, match="a/none") as caught:
            store.get_range("a/none", 0, 1)
        assert caught.value.name == "a/none"

    def test_a_taken_name_is_refused_and_its_object_unchanged(self, store: ObjectStore) -> None:
        store.put("a/b", b"first")
        with pytest.raises(ObjectExistsError, match="a/b"):
            store.put("a/b", b"second")
        assert store.get("a/b") == b"first"

    def test_a_listing_has_names_and_lengths_of_one_directory(self, store: ObjectStore) -> None:
        lengths = {"d/one": 1, "d/two": 2, "d/sub/three": 3, "d2/four": 4, "five": 5}
        for name, length in lengths.items():
            store.put(name, b"x" * length)
        listed = {info.name: info.length for info in store.list("d")}
        assert listed == {"d/one": 1, "d/two": 2}

    def test_a_listing_says_when_an_object_was_put(self, store: ObjectStore) -> None:
        before = time.time()
        store.put("d/one", b"x")
        (info,) = store.list("d")
        assert info.modified is not None
        assert abs(info.modified - before) < 600

    def test_directories_are_listed_apart_from_objects(self, store: ObjectStore) -> None:
        for name in ("d/a/1", "d/a/2", "d/b/1", "d/object", "e/c/1"):
            store.put(name, b"x")
        assert sorted(store.list_directories("d")) == ["d/a", "d/b"]

    def test_a_directory_that_never_was_lists_nothing(self, store: ObjectStore) -> None:
        assert list(store.list("nowhere")) == []
        assert list(store.list_directories("nowhere")) == []
        store.put("a/b", b"x")
        assert list(store.list("a/c")) == []

    def test_a_listing_shows_only_the_names_with_a_prefix(self, store: ObjectStore) -> None:
        """The listing has the names in the directory itself, and no names in subdirectories."""
        for name in ("d/aa-1", "d/aa-2", "d/ab-1", "d/aa/1", "daa-1"):
            store.put(name, b"x")
        assert {info.name for info in store.list("d", "aa-")} == {"d/aa-1", "d/aa-2"}
        assert {info.name for info in store.list("d", "aa")} == {"d/aa-1", "d/aa-2"}
        assert {info.name: info.length for info in store.list("d", "ab-1")} == {"d/ab-1": 1}
        assert list(store.list("d", "b")) == list(store.list("nowhere", "a")) == []

    def test_a_listing_is_never_stale(self, store: ObjectStore) -> None:
        for number in range(3):
            store.put(f"d/{number}", b"x")
            assert names_in(store, "d") == {f"d/{n}" for n in range(number + 1)}
        store.delete(["d/1"])
        assert names_in(store, "d") == {"d/0", "d/2"}

    def test_deleting_what_is_gone_does_not_matter(self, store: ObjectStore) -> None:
        store.put("d/a", b"x")
        store.put("d/b", b"x")
        store.delete(["d/a", "d/none", "nowhere/none"])
        store.delete(["d/a"])
        store.delete([])
        assert names_in(store, "d") == {"d/b"}

    def test_a_directory_is_gone_with_its_last_object(self, store: ObjectStore) -> None:
        store.put("epochs/1/a", b"x")
        store.put("epochs/2/a", b"x")
        store.delete(["epochs/1/a"])
        assert list(store.list_directories("epochs")) == ["epochs/2"]
        store.put("epochs/1/b", b"x")
        assert names_in(store, "epochs/1") == {"epochs/1/b"}

    def test_one_object_serves_many_threads(self, store: ObjectStore) -> None:
        def round_trip(number: int) -> bytes:
            store.put(f"d/{number}", str(number).encode())
            return store.get(f"d/{number}")

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(round_trip, range(40))) == [str(n).encode() for n in range(40)]
        assert len(names_in(store, "d")) == 40
        store.delete([f"d/{number}" for number in range(40)])
        assert names_in(store, "d") == set()
