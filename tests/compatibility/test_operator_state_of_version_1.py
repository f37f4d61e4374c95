"""Operator state of format version 1 stays readable.

Three subtasks of a source have list, union and broadcast state, with a type of every kind. This
module wrote the files:

    python -m tests.compatibility.test_operator_state_of_version_1 FOLDER
"""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from tests.support.stores.stored_forms import forms_in

FIXTURES = Path(__file__).parent / "version_1" / "operator_state"
SUBTASKS = 3
POSITIONS = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        ("position", pa.int64()),
        ("nested", pa.struct([("bytes", pa.binary()), ("numbers", pa.list_(pa.float64()))])),
    ]
)
WATERMARK = pa.schema([("time", pa.timestamp("us")), ("day", pa.date32())])
NAME = pa.schema([("name", pa.string())])
OPTION = pa.schema([("flag", pa.bool_()), ("amount", pa.decimal128(9, 2))])
OPTIONS = [(("a",), (True, Decimal("1.50"))), (("b",), (None, Decimal("-2.00")))]


def positions(subtask: int) -> list[tuple[Any, ...]]:
    full = (f"{subtask}.full", 1 << 40, (bytes([subtask]), [0.5, None]))
    return [full, (f"{subtask}.empty", None, None)][: 2 - subtask]


def watermark(subtask: int) -> tuple[Any, ...]:
    return (datetime.datetime(2026, 1, 1, subtask), datetime.date(2026, 1, 1 + subtask))


def snapshot(subtask: int) -> bytes:
    backend = OperatorStateBackend()
    backend.list_state("positions", POSITIONS).update(positions(subtask))
    backend.union_state("watermark", WATERMARK).add(watermark(subtask))
    options = backend.broadcast_state("options", NAME, OPTION)
    for key, value in OPTIONS:
        options.put(key, value)
    return backend.snapshot().to_bytes()


def main(folder: Path) -> None:
    folder.mkdir()
    for subtask in range(SUBTASKS):
        (folder / f"{subtask}.arrow").write_bytes(snapshot(subtask))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_operator_state_is_restored(parallelism: int) -> None:
    snapshots = [path.read_bytes() for path in sorted(FIXTURES.iterdir())]
    assert len(snapshots) == SUBTASKS
    dealt = []
    for subtask in range(parallelism):
        backend = OperatorStateBackend.restore(snapshots, subtask, parallelism)
        dealt += backend.list_state("positions", POSITIONS).get()
        union = backend.union_state("watermark", WATERMARK).get()
        assert union == [watermark(subtask) for subtask in range(SUBTASKS)]
        assert backend.broadcast_state("options", NAME, OPTION).items() == OPTIONS
    assert dealt == [item for subtask in range(SUBTASKS) for item in positions(subtask)]


def test_operator_state_is_written_in_the_form_of_version_1(tmp_path: Path) -> None:
    main(tmp_path / "operator_state")
    assert forms_in(tmp_path / "operator_state") == forms_in(FIXTURES)


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "operator_state")
