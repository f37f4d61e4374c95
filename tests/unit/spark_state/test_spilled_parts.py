"""Each part returns all rows in order, from memory and from the disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from spark_state.spilled_parts import SpilledParts

ROWS = 1_000


def rows_by_part(held_bytes: int) -> dict[int, list[int]]:
    """Return the rows of each part after adding ten tables; the last table has only two parts."""
    with SpilledParts(held_bytes) as parts:
        for start in range(0, ROWS, 100):
            numbers = np.arange(start, start + 100)
            rows = pa.table({"n": numbers, "text": [f"row {number}" for number in numbers]})
            parts.add(rows, numbers % (2 if start == 900 else 7))
        tables = {part: parts.rows_of(part) for part in range(9)}
    return {part: table["n"].to_pylist() for part, table in tables.items() if table is not None}


@pytest.mark.parametrize("held_bytes", [0, 5_000, 1 << 30])
def test_a_part_has_its_rows_in_order_wherever_they_are(held_bytes: int, tmp_path: Path) -> None:
    with mock.patch.object(tempfile, "tempdir", str(tmp_path)):
        by_part = rows_by_part(held_bytes)
    assert by_part == {
        part: [n for n in range(ROWS) if n % (2 if n >= 900 else 7) == part] for part in range(7)
    }
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_rows_is_named(tmp_path: Path) -> None:
    with (
        mock.patch.object(tempfile, "tempdir", str(tmp_path / "missing")),
        pytest.raises(OSError, match=r"/missing does not take rows .*: No such.* set TMPDIR"),
    ):
        rows_by_part(0)
