"""Reading a file of the provider detects a changed bit in any byte of the file."""

from __future__ import annotations

import pytest

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source
from checkpoint_store.provider.provider_file import decode_provider_file
from tests.support.provider.provider_file_bytes import (
    Row,
    batch_places,
    changelog,
    file_bytes,
    footer_begin,
    key_row,
    row_sums,
    value_row,
)

pytestmark = pytest.mark.fault

NAME = changelog(3)
ROWS: list[Row] = [(1, "one"), (2, None), (3, "a longer text than a word"), (1, ""), (2, "two")]
EXPECTED = [(key_row(number), text if text is None else value_row(text)) for number, text in ROWS]
SOURCE = Source("file:///checkpoint", f"state/0/0/{NAME}")


def rows_in(data: bytes) -> list[tuple[bytes, bytes | None]]:
    file = decode_provider_file(data, NAME, SOURCE)
    return [(row["key"], row["value"]) for batch in file.batches for row in batch.to_pylist()]


def test_a_bit_that_changes_anywhere_is_found_or_of_no_account() -> None:
    data = file_bytes(NAME, ROWS, sums=row_sums(ROWS))
    detected = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        try:
            assert rows_in(bytes(damaged)) == EXPECTED, f"byte {place}"
        except CorruptObjectError as error:
            detected += 1
            assert error.name == SOURCE.name  # noqa: PT017
    summed = sum(end - start for start, end in batch_places(data))
    assert detected >= summed + len(data) - footer_begin(data)
