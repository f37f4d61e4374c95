"""JSON documents survive encoding and decoding, and every damage is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from checkpoint_store.epochs.checkpoint_codec import (
    decode_barrier,
    decode_manifest,
    decode_metadata,
    encode_barrier,
    encode_manifest,
    encode_metadata,
    encode_run,
)
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    OperatorStateHandle,
    Run,
    StateSchema,
    SubtaskTime,
)
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.operator_layout import EpochDirectory, OperatorStateName
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_file_name import NamedKind, StateFileName
from checkpoint_store.files.state_handle import FilePart, StateHandle
from tests.support.operators.epoch_reports import NOTHING_DONE
from tests.support.stores.sealed_documents import of_version, sealed

SOURCE = Source("file:///store", "some/object.json", 12)
METADATA = StoreMetadata("store-1", "Zähler", 128, '{"type":"struct"}')
DIRECTORY = str(EpochDirectory(12, 3))


def file_name(kind: NamedKind) -> str:
    return str(StateFileName(DIRECTORY, kind, 0, 40, "0123456789ab"))


HANDLE = StateHandle(
    "changelog", file_name("changelog"), 100, "ab" * 32, KeyGroupRange(0, 63), 12, 9
)
BARRIER = Barrier(
    barrier_id="b2",
    epoch=12,
    subtask=0,
    parallelism=2,
    run=Run(3, "run-c"),
    attempt=40,
    plan_id="plan",
    base=("b0", "b1"),
    base_epoch=11,
    base_run=2,
    handles=(replace(HANDLE, kind="snapshot", name=file_name("snapshot")), HANDLE),
    states=(StateSchema("count", "value", '{"type":"long"}'),),
    report=NOTHING_DONE,
)
TIMED = replace(BARRIER, time=SubtaskTime(-5, (None, 1_000), 7))
REPORT = EpochReport(
    rows_in=9,
    rows_out=8,
    changed=7,
    removed=6,
    entries=50,
    written_bytes=400,
    restore_ms=3,
    process_ms=2,
    write_ms=1,
    states_deleted=2,
    failed_snapshots=1,
    late_rows=4,
    timers=5,
    memory_bytes=9_000,
    last_publish_ms=11,
)
OPERATOR_STATE = OperatorStateHandle(
    str(OperatorStateName(EpochDirectory(11, 3), 0, 38, "0123456789ab")),
    50,
    "cd" * 32,
    11,
    (("rules", "ef" * 32),),
)
WITH_OPERATOR_STATE = replace(BARRIER, operator_state=OPERATOR_STATE)
WITH_DELETED_STATES = replace(
    BARRIER, deleted_states=(StateSchema("old", "list", '{"type":"long"}', ttl_ms=5),)
)
RESTORED = replace(BARRIER, restored=True)
WITH_DATABASE = replace(
    BARRIER,
    handles=(
        replace(
            BARRIER.handles[0],
            kind="database",
            name=file_name("database"),
            parts=(FilePart(file_name("table"), 7, "cd" * 32),),
        ),
    ),
)
CHECKPOINT = CompletedCheckpoint(12, Run(3, "run-c"), 2, (BARRIER, replace(BARRIER, subtask=1)))

DOCUMENTS: list[tuple[bytes, Callable[[bytes, Source], object], object]] = [
    (encode_metadata(METADATA), decode_metadata, METADATA),
    (encode_barrier(BARRIER), decode_barrier, BARRIER),
    (encode_barrier(TIMED), decode_barrier, TIMED),
    (
        encode_barrier(replace(BARRIER, report=REPORT)),
        decode_barrier,
        replace(BARRIER, report=REPORT),
    ),
    (encode_barrier(WITH_OPERATOR_STATE), decode_barrier, WITH_OPERATOR_STATE),
    (encode_barrier(WITH_DELETED_STATES), decode_barrier, WITH_DELETED_STATES),
    (encode_manifest(CHECKPOINT), decode_manifest, CHECKPOINT),
    (encode_barrier(RESTORED), decode_barrier, RESTORED),
    (encode_barrier(WITH_DATABASE), decode_barrier, WITH_DATABASE),
]
each_document = pytest.mark.parametrize(
    ("data", "decode", "value"),
    DOCUMENTS,
    ids=[
        "store",
        "barrier",
        "with time",
        "with report",
        "with operator state",
        "with deleted states",
        "manifest",
        "restored",
        "with a database",
    ],
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
        for flip in (0x01, 0x20, 0x80):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(CorruptObjectError):
                decode(bytes(damaged), SOURCE)


@each_document
def test_any_other_form_of_the_same_values_is_damage(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    for other in (data + b"\n", json.dumps(json.loads(data)).encode(), data.replace(b":", b": ")):
        with pytest.raises(CorruptObjectError, match="canonical"):
            decode(other, SOURCE)


@each_document
def test_every_truncation_is_found(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError):
            decode(data[:length], SOURCE)


@each_document
def test_a_newer_version_is_told_from_damage(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"version 2.*upgrade cowstate") as caught:
        decode(of_version(2, data), SOURCE)
    assert caught.value.name == SOURCE.name


@each_document
@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_was_never_written_is_damage(
    data: bytes, decode: Callable[[bytes, Source], object], value: object, version: int
) -> None:
    with pytest.raises(CorruptObjectError, match=f"format version is {version}"):
        decode(of_version(version, data), SOURCE)


@each_document
def test_a_document_of_another_kind_is_damage(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    with pytest.raises(CorruptObjectError, match="cowstate/run") as caught:
        decode(encode_run(Run(1, "run-a")), SOURCE)
    assert (caught.value.name, caught.value.epoch) == (SOURCE.name, 12)


@pytest.mark.parametrize("body", [None, [], {}, {"epoch": 1}])
def test_a_checksum_does_not_excuse_unexpected_content(body: object) -> None:
    document: dict[str, object] = {"format": "cowstate/barrier", "version": 1, "body": body}
    with pytest.raises(CorruptObjectError, match="unexpected content"):
        decode_barrier(sealed(document), SOURCE)


@pytest.mark.parametrize(
    ("field", "value"),
    [("epoch", "12"), ("epoch", True), ("barrier_id", 1), ("base_epoch", "x"), ("base", [1])],
)
def test_values_of_the_wrong_type_are_damage(field: str, value: object) -> None:
    document = json.loads(encode_barrier(BARRIER))
    document["body"][field] = value
    with pytest.raises(CorruptObjectError, match="unexpected content"):
        decode_barrier(sealed(document), SOURCE)


def test_a_report_leaves_out_numbers_that_are_not_known() -> None:
    document = json.loads(encode_barrier(BARRIER))
    optional = {"late_rows", "timers", "memory_bytes", "last_publish_ms"}
    assert optional.isdisjoint(document["body"]["report"])


def test_fields_of_a_later_release_are_ignored() -> None:
    document = json.loads(encode_barrier(BARRIER))
    for place in (document["body"], document["body"]["report"], document["body"]["handles"][0]):
        place["of_a_later_release"] = 1
    assert decode_barrier(sealed(document), SOURCE) == BARRIER


@pytest.mark.parametrize("field", ["base_run", "report"])
def test_a_barrier_without_a_field_that_is_always_written_is_damage(field: str) -> None:
    document = json.loads(encode_barrier(BARRIER))
    del document["body"][field]
    with pytest.raises(CorruptObjectError, match=field):
        decode_barrier(sealed(document), SOURCE)


@each_document
def test_every_document_has_version_1(
    data: bytes, decode: Callable[[bytes, Source], object], value: object
) -> None:
    assert json.loads(data)["version"] == 1


def test_a_barrier_without_deleted_states_does_not_mention_them() -> None:
    assert "deleted_states" not in json.loads(encode_barrier(BARRIER))["body"]


def test_a_handle_of_an_unknown_kind_is_damage() -> None:
    document = json.loads(encode_barrier(BARRIER))
    document["body"]["handles"][0]["kind"] = "rumour"
    with pytest.raises(CorruptObjectError, match="rumour"):
        decode_barrier(sealed(document), SOURCE)


def test_bytes_are_those_that_the_format_documents() -> None:
    assert encode_run(Run(3, "run-c")) == (
        b'{"body":{"number":3,"run_id":"run-c"},'
        b'"checksum":"7416ae3363185896d410c48bb2c2052422eb8bd1e1a5e4b6169010d3768ff31e",'
        b'"format":"cowstate/run","version":1}'
    )
    assert b"Z\xc3\xa4hler" in encode_metadata(METADATA)
