"""State files in a store: a handle's contents, and the rows or the error of a read by handle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files import state_file_store
from checkpoint_store.files.epoch_file_name import EpochFileName, parse_epoch_file_name
from checkpoint_store.files.key_bounds import KeyBounds
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import StateFileHeader
from checkpoint_store.files.state_file_store import DecodedAhead, StateFileStore
from checkpoint_store.files.state_handle import StateHandle
from tests.support.stores.fake_object_store import DictObjectStore

HEADER = StateFileHeader("snapshot", "store-1", 12, 3, KeyGroupRange(10, 19))
ROWS = pa.table(
    {
        "_key_group": pa.array([10, 10, 12, 19], pa.int32()),
        "key": ["d", "b", "c", "a"],
        "number": [1, 2, 3, 4],
    }
)


class Counting(DictObjectStore):
    gets = 0

    def get(self, name: str) -> bytes:
        self.gets += 1
        return super().get(name)


@pytest.fixture
def objects() -> Counting:
    return Counting()


@pytest.fixture
def files(objects: Counting) -> StateFileStore:
    return StateFileStore(objects)


@pytest.fixture
def handle(files: StateFileStore) -> StateHandle:
    return files.write(ROWS, HEADER, "some/directory", 40)


def rows_in(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("number").to_pylist()]


def test_rows_of_the_asked_key_groups_are_read(files: StateFileStore, handle: StateHandle) -> None:
    assert rows_in(files.read(handle, KeyGroupRange(0, 99))) == [1, 2, 3, 4]
    assert rows_in(files.read(handle, KeyGroupRange(11, 12))) == [3]
    narrowed = replace(handle, key_groups=KeyGroupRange(12, 19))
    assert rows_in(files.read(narrowed, KeyGroupRange(0, 99))) == [3, 4]


def test_the_name_has_the_writer_s_own_part(files: StateFileStore, handle: StateHandle) -> None:
    second = files.write(ROWS, HEADER, "some/directory", 40)
    names = [parse_epoch_file_name(name) for name in (handle.name, second.name)]
    uniques = {name.unique for name in names if name is not None}
    expected = {EpochFileName("some/directory", "snapshot", 3, 40, each) for each in uniques}
    assert len(uniques) == 2
    assert {*names} == expected


def test_handles_have_bounds_of_wanted_columns(files: StateFileStore, handle: StateHandle) -> None:
    assert (handle.kind, handle.epoch, handle.rows) == ("snapshot", 12, 4)
    assert handle.key_bounds == ()
    bounded = files.write(ROWS, HEADER, "some/directory", 40, ["key"])
    assert bounded.key_bounds == (KeyBounds("key", "a", "d"),)


def test_handles_of_one_file_that_follow_one_another_read_it_once(
    objects: Counting, files: StateFileStore, handle: StateHandle
) -> None:
    parts = [replace(handle, key_groups=KeyGroupRange(group, group)) for group in (10, 12, 19)]
    read = [rows_in(batches) for _, batches in files.read_each(parts, KeyGroupRange(0, 99))]
    assert read == [[1, 2], [3], [4]]
    assert objects.gets == 1


def test_a_missing_file_is_named_with_its_epoch(
    objects: Counting, files: StateFileStore, handle: StateHandle
) -> None:
    objects.delete([handle.name])
    with pytest.raises(ObjectMissingError) as caught:
        files.read(handle, HEADER.key_groups)
    assert (caught.value.name, caught.value.epoch) == (handle.name, 12)


class ReadTogether(DictObjectStore):
    """A store that answers reads only once as many reads wait as `together` has parties."""

    together = threading.Barrier(1)

    def get(self, name: str) -> bytes:
        self.together.wait(60)
        return super().get(name)


def test_the_next_files_are_read_while_one_is_used() -> None:
    objects = ReadTogether()
    files = StateFileStore(objects)
    handles = [files.write(ROWS, HEADER, "some/directory", number) for number in range(6)]
    objects.together = threading.Barrier(3)
    read = [rows_in(batches) for _, batches in files.read_each(handles, KeyGroupRange(12, 19))]
    assert read == [[3, 4]] * 6


def test_the_next_batch_is_decoded_while_one_is_used() -> None:
    decoded = threading.Semaphore(0)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in ROWS.to_batches(max_chunksize=1):
            decoded.release()
            yield batch

    with ThreadPoolExecutor(1) as decoding:
        ahead = DecodedAhead(batches(), decoding)
        assert decoded.acquire(timeout=60), "the first one before it is asked for"
        next(ahead)
        assert decoded.acquire(timeout=60), "the second one while the first is used"
        assert not decoded.acquire(timeout=0.05), "and no more"
        assert rows_in(ahead) == [2, 3, 4]
        assert rows_in(ahead) == []


def test_an_error_of_decoding_comes_in_its_turn() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise CorruptObjectError("url", "name", "damaged")

    with ThreadPoolExecutor(1) as decoding:
        ahead = DecodedAhead(batches(), decoding)
        next(ahead)
        with pytest.raises(CorruptObjectError):
            next(ahead)


def test_only_some_bytes_are_held_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Counting()
    files = StateFileStore(objects)
    handles = [files.write(ROWS, HEADER, "some/directory", number) for number in range(9)]
    monkeypatch.setattr(state_file_store, "_BYTES_AHEAD", 2 * handles[0].length)
    for used, (handle, _) in enumerate(files.read_each(handles, KeyGroupRange(0, 99)), 1):
        assert handle == handles[used - 1]
        assert objects.gets <= used + 2


def test_who_stops_reading_leaves_no_thread(files: StateFileStore) -> None:
    handles = [files.write(ROWS, HEADER, "some/directory", number) for number in range(6)]
    read = files.read_each(handles, KeyGroupRange(0, 99))
    next(read)
    read.close()  # type: ignore[attr-defined]
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("cowstate-read", "cowstate-decode"))]


def test_the_error_of_a_file_comes_in_its_turn(objects: Counting, files: StateFileStore) -> None:
    handles = [files.write(ROWS, HEADER, "some/directory", number) for number in range(4)]
    objects.delete([handles[2].name])
    read = files.read_each(handles, KeyGroupRange(0, 99))
    assert [next(read)[0], next(read)[0]] == handles[:2]
    with pytest.raises(ObjectMissingError, match=handles[2].name):
        next(read)
