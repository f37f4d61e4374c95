"""Spark's schema file of a store gives the schemas of key and value."""

from __future__ import annotations

import pytest

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source
from checkpoint_store.provider.provider_errors import UnreadableStateError
from checkpoint_store.provider.spark_checkpoint import parse_state_schema
from tests.support.provider.provider_file_bytes import schema_json, state_schema

SOURCE = Source("memory://checkpoint", "state/0/0/_metadata/schema")
KEY, VALUE = schema_json("number" * 40, "long"), schema_json("text", "string")


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_both_versions_have_the_schemas_of_key_and_value(version: str) -> None:
    assert parse_state_schema(state_schema(KEY, VALUE, version), SOURCE) == (KEY, VALUE)


def test_texts_are_in_the_utf_8_of_java() -> None:
    data = state_schema("A", "B", "v1")
    # The bytes that Java's DataOutput.writeUTF writes for NUL, and for a character outside the BMP.
    java = b"\xc0\x80" + b"\xed\xa0\xbd\xed\xb8\x80" + "ä".encode()
    data = data.replace(b"\x00\x01A", len(java).to_bytes(2, "big") + java)
    assert parse_state_schema(data, SOURCE) == ("\0\N{GRINNING FACE}ä", "B")


def test_column_families_are_not_read() -> None:
    with pytest.raises(UnreadableStateError, match="has column families, which only RocksDB"):
        parse_state_schema(state_schema(KEY, VALUE, "v3"), SOURCE)


WHOLE = state_schema(KEY, VALUE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WHOLE[:1],
        WHOLE[:30],
        WHOLE[:-1],
        WHOLE + b"\0",
        b"\x00\x02w9" + WHOLE[4:],
        b"\xff" * 40,
    ],
)
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptObjectError, match=r"_metadata/schema .*not a state schema of Spark"):
        parse_state_schema(data, SOURCE)
