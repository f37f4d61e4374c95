"""A read of a few key groups reads only the needed bytes of a file, and verifies every byte."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.files import state_file
from checkpoint_store.files.document_body import body_of, decode_handle
from checkpoint_store.files.key_group_range import KeyGroupRange, key_group_range_of_subtask
from checkpoint_store.files.state_file import StateFile, StateFileHeader
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.object_names import parse_object_name
from tests.support.stores.fake_object_store import DictObjectStore, InterceptedObjectStore

GROUPS = 16
ALL = KeyGroupRange(0, GROUPS - 1)
HEADER = StateFileHeader("snapshot", "store-1", 12, 0, ALL)
Row = tuple[int, int]


def rows(of_group: int) -> pa.Table:
    """Make `of_group` rows of each key group, with values that compress badly."""
    numbers = [number * 2_654_435_761 % (1 << 31) for number in range(GROUPS * of_group)]
    key_groups = [number // of_group for number in range(GROUPS * of_group)]
    return pa.table({"_key_group": pa.array(key_groups, pa.int32()), "number": numbers})


@dataclass
class CountingStore(DictObjectStore):
    """A store that notes the byte ranges of all reads."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def get(self, name: str) -> bytes:
        data = super().get(name)
        self.ranges.append((0, len(data)))
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self.ranges.append((start, start + length))
        return super().get_range(name, start, length)

    def bytes_read(self) -> int:
        """Return the number of bytes read since the last call."""
        ranges, self.ranges = self.ranges, []
        return sum(end - start for start, end in ranges)


def written(table: pa.Table) -> tuple[CountingStore, StateFileStore, StateHandle]:
    """Write the rows as a snapshot into a new store."""
    objects = CountingStore()
    files = StateFileStore(objects)
    return objects, files, files.write(table, HEADER, "some/directory", 40)


def read(store: StateFileStore, handle: StateHandle, key_groups: KeyGroupRange) -> list[Row]:
    return [
        (row["_key_group"], row["number"])
        for batch in store.read(handle, key_groups)
        for row in batch.to_pylist()
    ]


def expected(table: pa.Table, key_groups: KeyGroupRange) -> list[Row]:
    lines = zip(table["_key_group"].to_pylist(), table["number"].to_pylist(), strict=True)
    return [line for line in lines if line[0] in key_groups]


@pytest.mark.parametrize("subtasks", [2, 4, 8])
def test_one_of_several_subtasks_reads_its_part_of_a_file(subtasks: int) -> None:
    """Without an index, each subtask would read the whole file."""
    objects, files, handle = written(table := rows(20_000))
    assert handle.tail is not None
    of_each = []
    for subtask in range(subtasks):
        own = key_group_range_of_subtask(GROUPS, subtasks, subtask)
        assert read(files, handle, own) == expected(table, own)
        assert len(objects.ranges) == 2, "the tail, and what is its own"
        of_each.append(objects.bytes_read())
        assert of_each[-1] <= 1.1 * handle.length / subtasks + handle.tail.length
    assert sum(of_each) < handle.length + subtasks * handle.tail.length
    assert handle.tail.length < handle.length / 100


def test_who_wants_all_reads_the_file_once() -> None:
    objects, files, handle = written(table := rows(20_000))
    assert read(files, handle, KeyGroupRange(0, 99)) == expected(table, ALL)
    assert objects.ranges == [(0, handle.length)]


def test_batches_of_a_long_file_are_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    _, files, handle = written(table := rows(20_000))
    original, threads = StateFile.has_rows, set()

    def noted(*given: Any) -> bool:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return original(*given)

    monkeypatch.setattr(StateFile, "has_rows", noted)
    ((read_handle, batches),) = (
        (read, [*batches]) for read, batches in files.read_each([handle], ALL)
    )
    assert read_handle == handle
    assert threads == {"cowstate-decode"}
    assert pa.Table.from_batches(batches)["number"].to_pylist() == table["number"].to_pylist()


def test_pieces_of_one_file_that_are_apart_are_read_without_what_is_between() -> None:
    objects, files, handle = written(rows(20_000))
    groups = [KeyGroupRange(0, 1), KeyGroupRange(7, 8), KeyGroupRange(9, 9)]
    pieces = [replace(handle, key_groups=key_groups) for key_groups in groups]
    groups_read = [
        [group for batch in batches for group in batch["_key_group"].unique().to_pylist()]
        for _, batches in files.read_each(pieces, ALL)
    ]
    assert groups_read == [[0, 1], [7, 8], [9]]
    assert len(objects.ranges) == 3
    assert objects.bytes_read() < 0.4 * handle.length


def test_a_handle_keeps_its_tail_in_documents_and_a_short_file_has_none() -> None:
    _, _, handle = written(rows(20_000))
    assert decode_handle(body_of(handle), parse_object_name) == handle
    _, _, small = written(rows(2))
    assert "tail" not in body_of(small)
    assert decode_handle(body_of(small), parse_object_name) == small


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of a few rows have an index."""
    monkeypatch.setattr(state_file, "INDEXED_BYTES", 0)
    monkeypatch.setattr(state_file, "BATCH_ROWS", 8)


SOME = KeyGroupRange(5, 7)


@pytest.mark.usefixtures("small_files")
def test_a_flipped_byte_in_what_is_read_is_found_wherever_it_is() -> None:
    objects, files, handle = written(table := rows(4))
    intact, right = objects.objects[handle.name], expected(table, SOME)
    assert read(files, handle, SOME) == right
    was_read = {at for start, end in objects.ranges for at in range(start, end)}
    assert len(was_read) < len(intact)
    for position in range(len(intact)):
        damaged = bytearray(intact)
        damaged[position] ^= 1
        objects.objects[handle.name] = bytes(damaged)
        if position in was_read:
            with pytest.raises(CorruptObjectError, match="sha256") as caught:
                read(files, handle, SOME)
            assert (caught.value.name, caught.value.epoch) == (handle.name, 12)
        else:
            assert read(files, handle, SOME) == right
        with pytest.raises(CorruptObjectError):
            read(files, handle, ALL)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_ends_too_early_is_found_wherever_it_ends() -> None:
    objects, files, handle = written(rows(4))
    intact = objects.objects[handle.name]
    for length in range(len(intact)):
        objects.objects[handle.name] = intact[:length]
        with pytest.raises(CorruptObjectError, match="bytes instead of") as caught:
            read(files, handle, SOME)
        assert (caught.value.name, caught.value.epoch) == (handle.name, 12)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"])
def test_a_store_that_gives_fewer_or_more_bytes_is_noticed(call: int, change: object) -> None:
    objects, _, handle = written(rows(4))
    calls = iter(range(10))

    def given(_: str, data: bytes) -> bytes:
        return change(data) if next(calls) == call else data  # type: ignore[operator]

    files = StateFileStore(InterceptedObjectStore(objects, getting=given))
    with pytest.raises(CorruptObjectError, match=r"bytes instead of \d+ from byte"):
        read(files, handle, SOME)


@pytest.mark.usefixtures("small_files")
def test_a_missing_file_is_named_with_its_epoch() -> None:
    objects, files, handle = written(rows(4))
    objects.delete([handle.name])
    with pytest.raises(ObjectMissingError) as caught:
        read(files, handle, SOME)
    assert (caught.value.name, caught.value.epoch) == (handle.name, 12)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("index", [b"", b"nonsense", b"[]", b"[[1]]", b'[[1, "00"]]', b"7"])
def test_an_index_that_cannot_be_is_damage(index: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "index_of", lambda *_: index)
    _, files, handle = written(rows(4))
    with pytest.raises(CorruptObjectError, match="not a state file of ours"):
        read(files, handle, SOME)
