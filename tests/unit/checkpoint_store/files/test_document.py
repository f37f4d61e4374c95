"""Documents of every kind survive encoding and decoding, and every damage is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from checkpoint_store.epochs import checkpoint_codec as of_operator
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    GroupedCheckpoint,
    OperatorStateHandle,
    Run,
    StateSchema,
    SubtaskTime,
)
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.epochs.subtask_groups import SubtaskGroup
from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source, encode_document
from checkpoint_store.files.document_body import body_of
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.state_handle import FilePart, StateHandle
from checkpoint_store.provider.state_place import StatePlace, decode_state_place
from checkpoint_store.states.event_time import WriterWatermarks
from checkpoint_store.tables import table_codec as of_table
from checkpoint_store.tables.table_version import TableCompaction, TableMetadata, TableVersion
from tests.support.operators.epoch_reports import NOTHING_DONE
from tests.support.stores.sealed_documents import of_version

SOURCE = Source("file:///store", "some/object.json", 12)
EPOCH = f"epochs/{4:019d}-{1:010d}"
BATCH = f"data/query/{3:019d}"


def handle(directory: str, kind: Any = "changelog", unique: str = "0123456789ab") -> StateHandle:
    ending, attempt = {"database": "json"}.get(kind, "arrow"), f"00000-{7:019d}-{unique}"
    table = FilePart(f"{directory}/table-{attempt}.sst", 3, "c" * 64)
    return StateHandle(
        kind=kind,
        name=f"{directory}/{kind}-{attempt}.{ending}",
        length=10,
        checksum="d" * 64,
        key_groups=KeyGroupRange(0, 7),
        epoch=4,
        rows=1,
        parts=(table,) if kind == "database" else (),
    )


BARRIER = Barrier(
    barrier_id="b",
    epoch=4,
    subtask=0,
    parallelism=2,
    run=Run(1, "run-1"),
    attempt=7,
    plan_id="plan",
    base=("a", "b"),
    base_epoch=3,
    base_run=1,
    handles=(handle(EPOCH), handle(EPOCH, "snapshot")),
    states=(StateSchema("s", "value", "{}"),),
    report=NOTHING_DONE,
)
FULL_BARRIER = replace(
    BARRIER,
    handles=(handle(EPOCH), handle(EPOCH, "database")),
    operator_state=OperatorStateHandle(
        f"{EPOCH}/operator-state-00000-{7:019d}-0123456789ab.arrow",
        *(9, "e" * 64, 4, (("rules", "f" * 64),)),
    ),
    report=EpochReport(
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
    ),
    time=SubtaskTime(-5, (None, 1_000), 7, None),
    deleted_states=(StateSchema("t", "list", "{}", ttl_ms=5),),
    restored=True,
)
GROUP = f"{EPOCH}/group-00000-00099-of-00200-{'n' * 19}-{9:019d}-0123456789ab.json"
TABLE = TableMetadata("id", "{}", 8, "zählung", True)
ONE, TWO, THREE = (handle(BATCH, unique=digit * 12) for digit in "bcd")
SNAPSHOT = handle(f"data/compacted/{0:019d}", "snapshot")
VERSION = TableVersion(
    version=12,
    owner="query",
    timestamp_ms=1_700_000_000_000,
    schema_json="{}",
    batches={"query": 12, "other": 0},
    changes=(ONE, TWO),
    state=(SNAPSHOT, ONE, TWO),
    watermarks=WriterWatermarks(4, {0: 1_700_000_000_000, 3: -5}, -5),
    failed_upkeep=3,
    run="run",
)


@dataclass(frozen=True)
class Document:
    """A value of a kind, its bytes, and the function that reads the bytes."""

    kind: str
    value: Any
    data: bytes
    decode: Callable[[bytes, Source], Any]


def document(kind: str, value: Any, encode: Callable[[Any], bytes], decode: Any) -> Document:
    return Document(kind, value, encode(value), decode)


CHECKPOINT = CompletedCheckpoint(4, Run(1, "run-1"), 2, (BARRIER, replace(BARRIER, subtask=1)))
GROUPED = GroupedCheckpoint(4, Run(1, "run-1"), 200, ((SubtaskGroup(0, 99), GROUP),))
COMPACTION = TableCompaction(11, (SNAPSHOT.name, ONE.name), (SNAPSHOT, TWO))
STORE = StoreMetadata("id", "Zähler", 8, "{}")
PLACE = StatePlace("s3://bucket", "query")
OF_BARRIER = (of_operator.encode_barrier, of_operator.decode_barrier)
DOCUMENTS = [
    document("store", STORE, of_operator.encode_metadata, of_operator.decode_metadata),
    document("barrier", BARRIER, *OF_BARRIER),
    document("barrier", FULL_BARRIER, *OF_BARRIER),
    document("group", (FULL_BARRIER,), of_operator.encode_group, of_operator.decode_group),
    document("manifest", CHECKPOINT, of_operator.encode_manifest, of_operator.decode_manifest),
    document("manifest", GROUPED, of_operator.encode_manifest, of_operator.decode_manifest),
    document("table", TABLE, of_table.encode_table, of_table.decode_table),
    document(
        "table", replace(TABLE, sequence_by=None), of_table.encode_table, of_table.decode_table
    ),
    document("table-version", VERSION, of_table.encode_version, of_table.decode_version),
    document(
        "table-compaction", COMPACTION, of_table.encode_compaction, of_table.decode_compaction
    ),
    document("state-place", PLACE, StatePlace.encode, decode_state_place),
]
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each.kind)


@each_document
def test_what_was_encoded_is_decoded(document: Document) -> None:
    assert document.decode(document.data, SOURCE) == document.value


@each_document
def test_every_changed_byte_and_every_truncation_is_found(document: Document) -> None:
    data = document.data
    for position in range(len(data)):
        flipped = [data[position] ^ flip for flip in (0x01, 0x20, 0x80)]
        others = [data[:position] + bytes([byte]) + data[position + 1 :] for byte in flipped]
        for damaged in (data[:position], *others):
            with pytest.raises(CorruptObjectError) as caught:
                document.decode(damaged, SOURCE)
            assert (caught.value.name, caught.value.epoch) == (SOURCE.name, SOURCE.epoch)


@each_document
def test_any_other_form_of_the_same_values_is_damage(document: Document) -> None:
    data = document.data
    for other in (data + b"\n", json.dumps(json.loads(data)).encode(), data.replace(b":", b": ")):
        with pytest.raises(CorruptObjectError, match="canonical"):
            document.decode(other, SOURCE)


@each_document
def test_a_newer_version_is_told_from_damage(document: Document) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"version 2.*upgrade cowstate") as caught:
        document.decode(of_version(2, document.data), SOURCE)
    assert caught.value.name == SOURCE.name


@each_document
def test_every_document_has_version_1_and_a_version_below_is_damage(document: Document) -> None:
    assert json.loads(document.data)["version"] == 1
    for version in (0, -1):
        with pytest.raises(CorruptObjectError, match=f"format version is {version}"):
            document.decode(of_version(version, document.data), SOURCE)


@each_document
def test_a_document_of_another_kind_is_damage(document: Document) -> None:
    with pytest.raises(CorruptObjectError, match="format is cowstate/run") as caught:
        document.decode(of_operator.encode_run(Run(1, "run-1")), SOURCE)
    assert (caught.value.name, caught.value.epoch) == (SOURCE.name, SOURCE.epoch)


@each_document
@pytest.mark.parametrize("body", [None, [], {}, {"epoch": 1, "url": "s3://bucket"}])
def test_a_checksum_does_not_excuse_another_body(document: Document, body: Any) -> None:
    with pytest.raises(CorruptObjectError, match="unexpected content"):
        document.decode(encode_document(document.kind, body), SOURCE)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("barrier", "epoch", "12"),
        ("barrier", "epoch", True),
        ("barrier", "barrier_id", 1),
        ("barrier", "base", [1]),
        ("barrier", "handles", [body_of(handle(EPOCH)) | {"kind": "rumour"}]),
        ("barrier", "handles", [body_of(handle(EPOCH)) | {"key_bounds": [["id", 1, "x"]]}]),
        ("table", "ignore_null_updates", 1),
        ("table-version", "owner", 7),
        ("table-version", "batches", {"query": "12"}),
        ("table-version", "batches", ["query"]),
        ("table-version", "changes", [{}]),
        ("table-version", "state", [ONE.name]),
        ("table-version", "state", [2]),
        (
            "table-version",
            "watermarks",
            {"parallelism": 1, "by_subtask": {"0": "late"}, "least_ms": 1},
        ),
        ("table-version", "watermarks", {"parallelism": 1, "by_subtask": {}, "least_ms": "late"}),
        ("table-compaction", "files", None),
    ],
)
def test_a_checksum_excuses_no_values_of_another_type(kind: str, field: str, value: object) -> None:
    document = next(document for document in DOCUMENTS if document.kind == kind)
    body = json.loads(document.data)["body"]
    assert field in body
    with pytest.raises(CorruptObjectError, match="unexpected content"):
        document.decode(encode_document(kind, body | {field: value}), SOURCE)
