"""A table's documents survive encoding and decoding, and every damage is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file_name import NamedKind, StateFileName
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.states.event_time import WriterWatermarks
from checkpoint_store.tables.table_codec import (
    decode_compaction,
    decode_table,
    decode_version,
    encode_compaction,
    encode_table,
    encode_version,
)
from checkpoint_store.tables.table_layout import (
    BatchDirectory,
    CompactionName,
    parse_batch_directory,
    parse_compaction,
    parse_table_file,
    parse_version,
    version_name,
)
from checkpoint_store.tables.table_version import (
    TableCompaction,
    TableMetadata,
    TableVersion,
    compacted,
)
from tests.support.stores.sealed_documents import of_version, sealed

SOURCE = Source("file:///table", "some/object.json", 12)
TABLE = TableMetadata("table-1", '{"type":"struct"}', 128, "zählung", True)


def file_name(unique: str, kind: NamedKind = "changelog") -> str:
    return str(StateFileName(str(BatchDirectory("q", 1)), kind, 0, 1, unique * 12))


HANDLE = StateHandle("changelog", file_name("a"), 100, "ab" * 32, KeyGroupRange(0, 63), 12, 9)
ONE, TWO, THREE = (replace(HANDLE, name=file_name(unique)) for unique in "bcd")
SNAPSHOT = replace(HANDLE, kind="snapshot", name=file_name("a", "snapshot"))
VERSION = TableVersion(
    version=12,
    owner="query-a",
    timestamp_ms=1_700_000_000_000,
    schema_json='{"type":"struct"}',
    batches={"query-a": 12, "query-b": 0},
    changes=(ONE, TWO),
    state=(SNAPSHOT, ONE, TWO),
    run="run-12",
    watermarks=WriterWatermarks(4, {0: 1_700_000_000_000, 3: -5}, -5),
    failed_upkeep=3,
)
COMPACTION = TableCompaction(11, (HANDLE.name, ONE.name), (SNAPSHOT, TWO))

DOCUMENTS: list[tuple[bytes, Callable[[bytes, Source], object], object]] = [
    (encode_table(TABLE), decode_table, TABLE),
    (
        encode_table(replace(TABLE, sequence_by=None)),
        decode_table,
        replace(TABLE, sequence_by=None),
    ),
    (encode_version(VERSION), decode_version, VERSION),
    (encode_compaction(COMPACTION), decode_compaction, COMPACTION),
]
each_document = pytest.mark.parametrize(
    ("data", "decode", "value"),
    DOCUMENTS,
    ids=["table", "table without sequence", "version", "compaction"],
)


@each_document
def test_what_was_encoded_is_decoded(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    assert decode(data, SOURCE) == value


@each_document
def test_every_changed_byte_is_found(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x01
        with pytest.raises(CorruptObjectError) as caught:
            decode(bytes(damaged), SOURCE)
        assert (caught.value.name, caught.value.epoch) == (SOURCE.name, SOURCE.epoch)


@each_document
def test_every_truncation_is_found(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError):
            decode(data[:length], SOURCE)


@each_document
def test_a_newer_format_is_told_from_damage(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    with pytest.raises(UnsupportedFormatError, match="version 2"):
        decode(of_version(2, data), SOURCE)


@each_document
def test_no_document_is_taken_for_another_kind(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    for _, other, of_other in DOCUMENTS:
        if type(of_other) is not type(value):
            with pytest.raises(CorruptObjectError, match="format is cowstate/table"):
                other(data, SOURCE)


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        (0, "max_parallelism", "128"),
        (0, "ignore_null_updates", 1),
        (0, "sequence_by", 3),
        (2, "version", True),
        (2, "owner", 7),
        (2, "batches", {"query-a": "12"}),
        (2, "batches", ["query-a"]),
        (2, "changes", [{}]),
        (2, "state", [HANDLE.name]),
        (2, "state", [2]),
        (2, "watermarks", {}),
        (2, "watermarks", {"parallelism": 1, "by_subtask": {"0": "late"}, "least_ms": 1}),
        (2, "watermarks", {"parallelism": 1, "by_subtask": {}, "least_ms": "late"}),
        (2, "failed_upkeep", "often"),
        (3, "replaces", [1]),
        (3, "files", None),
    ],
)
def test_a_checksum_does_not_excuse_unexpected_content(
    place: int, field: str, value: object
) -> None:
    data, decode, _ = DOCUMENTS[place]
    document = json.loads(data)
    assert field in document["body"]
    document["body"][field] = value
    with pytest.raises(CorruptObjectError, match="unexpected content"):
        decode(sealed(document), SOURCE)


def test_a_file_that_is_new_and_of_the_state_is_written_once() -> None:
    data = encode_version(VERSION)
    assert data.count(ONE.name.encode()) == data.count(TWO.name.encode()) == 1
    assert json.loads(data)["body"]["state"][1:] == [0, 1]


def test_a_version_needs_the_files_of_its_changes_and_of_its_state() -> None:
    version = replace(VERSION, state=(THREE,))
    assert version.object_names() == {ONE.name, TWO.name, THREE.name}


def test_names_are_those_that_the_layout_documents_and_parse() -> None:
    assert version_name(7) == "versions/0000000000000000007.json"
    assert parse_version(version_name(7)) == 7
    compaction = CompactionName(7, "0123456789ab")
    assert str(compaction) == "compactions/0000000000000000007-0123456789ab.json"
    assert parse_compaction(str(compaction)) == compaction
    directory = BatchDirectory("query-a", 3)
    file = StateFileName(str(directory), "snapshot", 2, 40, "0123456789ab")
    assert str(file) == (
        "data/query-a/0000000000000000003/snapshot-00002-0000000000000000040-0123456789ab.arrow"
    )
    assert parse_table_file(str(file)) == parse_batch_directory(str(directory)) == directory


@pytest.mark.parametrize(
    "name",
    [
        "versions/7.json",
        "versions/0000000000000000007.json.crc",
        "compactions/0000000000000000007-0123456789a.json",
        "data/query-a/0000000000000000003/changelog-00002-1-0123456789ab.arrow",
        "data/query-a/0000000000000000003/rumour-00002-0000000000000000040-0123456789ab.arrow",
        "_SUCCESS",
    ],
)
def test_names_of_others_are_not_ours(name: str) -> None:
    assert [parse(name) for parse in (parse_version, parse_compaction, parse_table_file)] == [
        None,
        None,
        None,
    ]


class TestCompactionsThatFit:
    def test_a_state_that_begins_with_what_is_replaced_is_compacted(self) -> None:
        merged = compacted(replace(VERSION, state=(HANDLE, ONE, THREE)), (COMPACTION,))
        assert merged.state == (*COMPACTION.files, THREE)
        assert merged.changes == VERSION.changes

    @pytest.mark.parametrize("state", [(HANDLE,), (ONE, HANDLE), (HANDLE, TWO, ONE), ()])
    def test_any_other_state_stays_as_it_is(self, state: tuple[StateHandle, ...]) -> None:
        version = replace(VERSION, state=state)
        assert compacted(version, (COMPACTION,)) == version

    def test_the_newest_that_fits_is_applied(self) -> None:
        older = TableCompaction(3, (HANDLE.name,), (THREE,))
        newer = TableCompaction(99, (THREE.name,), (TWO,))
        version = replace(VERSION, state=(HANDLE, ONE))
        assert compacted(version, (older, COMPACTION, newer)).state == COMPACTION.files
        assert compacted(version, (older, newer)).state == (THREE, ONE)
