"""Supported versions of Spark's checkpoint files are read, and later versions are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.provider.provider_errors import UnreadableStateError
from checkpoint_store.provider.query_partitions import QueryPartitions
from checkpoint_store.provider.spark_checkpoint import (
    committed_ids,
    partitions_of,
    schema_file_of,
    state_schemas,
)
from checkpoint_store.provider.spark_log_entry import parse_log_entry
from tests.support.provider.provider_file_bytes import state_schema
from tests.support.provider.scripted_checkpoint import NUMBERS, TEXTS, write_metadata

OFFSETS = '{"conf":{"spark.sql.shuffle.partitions":"3"},"sourceMetadataInfo":{}}\nleft_one:{"a":0}'
COMMIT = '{"stateUniqueIds":{"0":[["00"]]},"sinkMetadataMap":{"my_sink":{"isActive":true}}}'
OPERATOR = (
    '{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},'
    '"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}'
)
READ_OFFSETS = ("offsets/7", OFFSETS, 2, lambda store: QueryPartitions(store).after(7), 3)
READ_COMMIT = ("commits/7", COMMIT, 3, lambda store: committed_ids(store, 7, 0), {"00"})
READ_OPERATOR = (
    "state/0/_metadata/metadata",
    OPERATOR,
    2,
    lambda store: partitions_of(store, store, 0, "default").noted,
    2,
)
Read = Callable[[ObjectStore], object]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_object_store(str(tmp_path))
    for partition in range(2):
        store.put(f"state/0/{partition}/1.changelog", b"")
    return store


@pytest.mark.parametrize(
    ("name", "text", "newest", "read", "answer"), [READ_OFFSETS, READ_COMMIT, READ_OPERATOR]
)
def test_each_version_up_to_the_newest_is_read_and_later_ones_are_refused_by_name(
    store: ObjectStore, name: str, text: str, newest: int, read: Read, answer: object
) -> None:
    for version in range(1, newest + 1):
        store.delete([name])
        store.put(name, f"v{version}\n{text}".encode())
        assert read(store) == answer
    store.delete([name])
    store.put(name, f"v{newest + 1}\n{text}".encode())
    message = f"{name} in .* has format version {newest + 1}; .* reads up to {newest}"
    with pytest.raises(UnsupportedFormatError, match=message):
        read(store)


@pytest.mark.parametrize("name", ["offsets/7", "commits/7", "state/0/_metadata/metadata"])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it begins with ''"),
        (b"v0\n{}", "it begins with 'v0'"),
        (b"v-1\n{}", "it begins with 'v-1'"),
        ("v\N{ARABIC-INDIC DIGIT ONE}\n{}".encode(), "it begins with"),
        (b"{}", "it begins with '{}'"),
        (b"v1", "not a version and a line of JSON"),
        (b"v1\n{", "not a version and a line of JSON"),
        (b"v1\n[]", "its second line is not a JSON object"),
        (b"v1\n\xff", "utf-8"),
    ],
)
def test_anything_else_is_damage(name: str, data: bytes, problem: str) -> None:
    with pytest.raises(CorruptObjectError, match=f"{name} .*{problem}"):
        parse_log_entry(data, Source("memory://checkpoint", name))


def test_a_schema_of_a_later_version_is_refused_by_name(store: ObjectStore) -> None:
    write_metadata(store, "default")
    name = schema_file_of(0, "default")
    store.delete([name])
    store.put(name, state_schema(NUMBERS, TEXTS, "v4"))
    with pytest.raises(UnsupportedFormatError, match=f"{name} .* version 4; .* reads up to 3"):
        state_schemas(store, 0, "default")


@pytest.mark.parametrize(
    ("folder", "error"), [("v2", UnreadableStateError), ("v3", UnsupportedFormatError)]
)
def test_an_operator_that_a_later_version_notes_elsewhere_is_not_guessed_from_its_directories(
    store: ObjectStore, folder: str, error: type[Exception]
) -> None:
    store.put(f"state/0/_metadata/{folder}/0", f"{folder}\n{OPERATOR}".encode())
    with pytest.raises(error, match="state/0"):
        partitions_of(store, store, 0, "default")
