"""A provider's file is verified, and damage never changes the rows of a read."""

from __future__ import annotations

import pytest

from checkpoint_store.errors import CorruptObjectError, UnsupportedFormatError
from checkpoint_store.files.document import Source
from checkpoint_store.provider.provider_errors import UnreadableStateError
from checkpoint_store.provider.provider_file import ProviderFile, decode_provider_file
from tests.support.provider.provider_file_bytes import (
    Row,
    changelog,
    file_bytes,
    key_row,
    row_sums,
    schema_json,
    schemas_of,
    value_row,
)

NAME = changelog(3)
ROWS: list[Row] = [(1, "one"), (2, None), (3, "a longer text than a word"), (1, ""), (2, "two")]
SOURCE = Source("file:///checkpoint", f"state/0/0/{NAME}")


def decode(data: bytes) -> ProviderFile:
    return decode_provider_file(data, NAME, SOURCE)


def rows_of(file: ProviderFile) -> list[tuple[bytes, bytes | None]]:
    return [(row["key"], row["value"]) for batch in file.batches for row in batch.to_pylist()]


EXPECTED = [(key_row(number), text if text is None else value_row(text)) for number, text in ROWS]


@pytest.mark.parametrize("sums", [None, row_sums(ROWS)], ids=["plain", "row checksums"])
def test_rows_are_read_as_they_were_written(sums: list[int] | None) -> None:
    file = decode(file_bytes(NAME, ROWS, sums=sums))
    assert rows_of(file) == EXPECTED
    assert [batch.num_columns for batch in file.batches] == [2, 2, 2]


def test_a_file_without_rows_has_its_schemas() -> None:
    file = decode(file_bytes(NAME, []))
    assert file.batches == ()
    assert file.schemas.key.fields[0][0] == "number"


def test_a_file_that_was_cut_is_refused_wherever_the_cut_is() -> None:
    data = file_bytes(NAME, ROWS)
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError):
            decode(data[:length])


@pytest.mark.parametrize(
    ("forged", "problem"),
    [
        ({"cowstate.version": "4"}, "it says version = 4, its name 3"),
        ({"cowstate.kind": "snapshot"}, "it says kind = snapshot"),
        ({"cowstate.base": "0"}, "it says base = 0"),
        ({"cowstate.unique": "f" * 16}, "it says unique"),
        ({"cowstate.rows": "6"}, "it has 5 rows and says 6"),
        ({"cowstate.batch_crc32": ""}, "it has 3 record batches, 0 checksums"),
        (schemas_of("{}"), "its footer has no 'type'"),
        (schemas_of('"long"'), "no struct"),
        ({"cowstate.schemas": "AAAA"}, "its schemas are not what was written"),
        ({"cowstate.row_checksum": "crc32c"}, "its columns are"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(forged: dict[str, str], problem: str) -> None:
    with pytest.raises(CorruptObjectError, match=problem):
        decode(file_bytes(NAME, ROWS, forged))


def test_a_row_whose_checksum_differs_is_refused() -> None:
    sums = row_sums(ROWS)
    sums[3] ^= 1
    with pytest.raises(CorruptObjectError, match="record batch 1: a row's checksum differs"):
        decode(file_bytes(NAME, ROWS, sums=sums))


def test_a_later_format_is_told_from_damage() -> None:
    with pytest.raises(UnsupportedFormatError, match="format version 2"):
        decode(file_bytes(NAME, ROWS, {"cowstate.format": "2"}))


def test_row_checksums_that_are_not_known_are_named() -> None:
    with pytest.raises(UnreadableStateError, match="checksums of xxh3"):
        decode(file_bytes(NAME, ROWS, {"cowstate.row_checksum": "xxh3"}, row_sums(ROWS)))


def test_a_type_that_is_not_known_is_named_with_its_column() -> None:
    forged = schemas_of(schema_json("place", "geometry(4326)"))
    with pytest.raises(UnreadableStateError, match=r"column place has type geometry\(4326\)"):
        decode(file_bytes(NAME, ROWS, forged))
