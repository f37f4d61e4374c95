"""Changelogs and snapshots have the documented bytes, and damage is an error."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.entry_growth import noted_growth, with_growth
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file import (
    BATCH_BYTES,
    MAX_BATCH_ROWS,
    StateFileHeader,
    encode_state_file,
)
from checkpoint_store.files.state_file_store import StateFileStore
from checkpoint_store.files.state_handle import StateHandle
from tests.support.stores.fake_object_store import DictObjectStore

HEADER = StateFileHeader("changelog", "store-1", 12, 3, KeyGroupRange(10, 19))


def table(*key_groups: int) -> pa.Table:
    return pa.table(
        {
            "_key_group": pa.array(key_groups, pa.int32()),
            "key": [f"key {number}" for number in range(len(key_groups))],
        }
    )


def handle_of(data: bytes, rows: int, header: StateFileHeader = HEADER) -> StateHandle:
    return StateHandle(
        kind=header.kind,
        name="epochs/x/changelog",
        length=len(data),
        checksum=hashlib.sha256(data).hexdigest(),
        key_groups=header.key_groups,
        epoch=header.epoch,
        rows=rows,
    )


def read(data: bytes, handle: StateHandle, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    objects = DictObjectStore()
    objects.put(handle.name, data)
    return StateFileStore(objects).read(handle, key_groups)


def decoded(data: bytes, handle: StateHandle, key_groups: KeyGroupRange) -> list[dict[str, object]]:
    return [row for batch in read(data, handle, key_groups) for row in batch.to_pylist()]


def rewritten(data: bytes, **changes: str) -> bytes:
    """Write the file again with changed metadata."""
    whole = pa.ipc.open_file(data).read_all()
    metadata = {**whole.schema.metadata}
    metadata.update({f"cowstate.{key}".encode(): text.encode() for key, text in changes.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, whole.schema.with_metadata(metadata)) as writer:
        writer.write_table(whole)
    return sink.getvalue().to_pybytes()


def test_any_arrow_reader_reads_the_file_and_what_it_says_of_itself() -> None:
    rows = table(10, 10, 12, 19)
    read = pa.ipc.open_file(encode_state_file(rows, HEADER).data).read_all()
    assert read.to_pylist() == rows.to_pylist()
    assert {key.decode(): text.decode() for key, text in read.schema.metadata.items()} == {
        "cowstate.format_version": "1",
        "cowstate.kind": "changelog",
        "cowstate.store_id": "store-1",
        "cowstate.epoch": "12",
        "cowstate.subtask": "3",
        "cowstate.key_groups": "[10, 19]",
        "cowstate.rows": "4",
        "cowstate.batches": "[[10, 19, 4]]",
    }


def test_metadata_that_the_table_brings_is_kept() -> None:
    data = encode_state_file(table(10).replace_schema_metadata({"states": "{}"}), HEADER).data
    assert pa.ipc.open_file(data).schema.metadata[b"states"] == b"{}"


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(10, 19, [10, 12, 12, 15]), (12, 12, [12, 12]), (11, 14, [12, 12]), (13, 14, []), (0, 9, [])],
)
def test_only_rows_of_the_range_are_read(start: int, end: int, expected: list[int]) -> None:
    data = encode_state_file(table(10, 12, 12, 15), HEADER).data
    rows = decoded(data, handle_of(data, 4), KeyGroupRange(start, end))
    assert [row["_key_group"] for row in rows] == expected


def batches_of(rows: pa.Table) -> list[tuple[int, int, int]]:
    """Return the first key group, the last key group and the number of rows of each batch of a
    file."""
    metadata = pa.ipc.open_file(encode_state_file(rows, HEADER).data).schema.metadata
    return [tuple(entry) for entry in json.loads(metadata[b"cowstate.batches"])]


def test_large_tables_are_cut_where_key_groups_end_and_only_batches_needed_are_read() -> None:
    key_groups = [10 + number * 10 // 200_000 for number in range(200_000)]
    rows = table(*key_groups)
    data = encode_state_file(rows, HEADER).data
    assert batches_of(rows) == [*((group, group, 20_000) for group in range(10, 20)), (19, 19, 0)]
    handle = handle_of(data, 200_000)
    batches = list(read(data, handle, KeyGroupRange(13, 13)))
    assert [batch.num_rows for batch in batches] == [20_000]
    assert decoded(data, handle, HEADER.key_groups) == rows.to_pylist()
    assert pa.ipc.open_file(data).read_all().to_pylist() == rows.to_pylist()


def test_small_key_groups_share_a_batch_and_large_ones_are_cut() -> None:
    small = table(*sorted(10 + number % 9 for number in range(18_000)), *[19] * 70_000)
    assert batches_of(small) == [
        (10, 18, 18_000),
        (19, 19, MAX_BATCH_ROWS),
        (19, 19, 70_000 - MAX_BATCH_ROWS),
        (19, 19, 0),
    ]


def test_batches_have_few_long_rows_where_most_rows_are_short() -> None:
    rows = table(*[10] * 100_000, *[11] * 300)
    texts = pa.array(["x"] * 100_000 + ["x" * 100_000] * 300)
    data = encode_state_file(rows.append_column("text", texts), HEADER).data
    reader = pa.ipc.open_file(data)
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    assert sum(batch.num_rows for batch in batches) == 100_300
    assert max(batch.nbytes for batch in batches) <= 4 * BATCH_BYTES


def test_the_rows_are_compressed() -> None:
    rows = table(*[10] * 10_000)
    assert len(encode_state_file(rows, HEADER).data) < rows.nbytes / 3


def test_an_empty_table_is_a_file() -> None:
    data = encode_state_file(table(), HEADER).data
    assert decoded(data, handle_of(data, 0), HEADER.key_groups) == []


@pytest.mark.parametrize("key_groups", [(12, 10), (9, 10), (10, 20)])
def test_unsorted_or_foreign_rows_are_a_bug_of_the_writer(key_groups: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        encode_state_file(table(*key_groups), HEADER)


def test_a_newer_format_is_told_from_damage() -> None:
    data = rewritten(encode_state_file(table(10), HEADER).data, format_version="2")
    with pytest.raises(UnsupportedFormatError, match=r"version 2.*upgrade cowstate"):
        decoded(data, handle_of(data, 1), HEADER.key_groups)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "snapshot"},
        {"epoch": "13"},
        {"rows": "2"},
        {"batches": "[[10, 10, 2]]"},
        {"batches": "[]"},
        {"batches": "nonsense"},
        {"key_groups": "[10, 18]"},
        {"format_version": "one"},
    ],
)
def test_a_file_that_contradicts_its_handle_is_damage(changes: dict[str, str]) -> None:
    data = rewritten(encode_state_file(table(10), HEADER).data, **changes)
    with pytest.raises(CorruptObjectError, match="not a state file of ours"):
        decoded(data, handle_of(data, 1), HEADER.key_groups)


def test_a_file_that_is_not_arrow_is_damage() -> None:
    with pytest.raises(CorruptObjectError, match="not a state file of ours"):
        decoded(b"hello", handle_of(b"hello", 1), HEADER.key_groups)


NO_GROWTHS = (
    b"",
    b"[]",
    b"7",
    b'{"count": 1}',
    b'{"count": [[1]]}',
    b'{"count": [[1], [1, 2]]}',
    b'{"count": [["one"], [1]]}',
)


@pytest.mark.parametrize(
    "growth",
    [
        "",
        "{}",
        base64.b64encode(b"{}").decode(),
        *(base64.b64encode(zlib.compress(text)).decode() for text in NO_GROWTHS),
    ],
)
def test_a_growth_that_is_none_is_found_before_rows_are_read(growth: str) -> None:
    data = rewritten(encode_state_file(table(10, 10), HEADER).data, growth=growth)
    with pytest.raises(CorruptObjectError, match="not a state file of ours"):
        decoded(data, handle_of(data, 2), HEADER.key_groups)


def test_a_file_notes_how_much_states_grow() -> None:
    growth = {"count": {10: 2, 12: -1}, "place": {}}
    data = encode_state_file(with_growth(table(10, 10, 12), growth), HEADER).data
    assert noted_growth(pa.ipc.open_file(data).schema) == growth
    (batch,) = read(data, handle_of(data, 3), HEADER.key_groups)
    assert noted_growth(batch.schema) == growth
    assert noted_growth(table().schema) == {}


@pytest.mark.parametrize("growth", [1, -1])
def test_a_note_of_many_key_groups_takes_a_few_bits_of_each(growth: int) -> None:
    key_groups = random.Random(0).sample(range(4096), 2900)
    noted = with_growth(table(), {"count": dict.fromkeys(key_groups, growth)})
    assert noted_growth(noted.schema) == {"count": dict.fromkeys(key_groups, growth)}
    (text,) = noted.schema.metadata.values()
    assert len(text) < 2900 * 5 // 8
