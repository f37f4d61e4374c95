"""Writes operator state: python -m tests.compatibility.write_operator_state FOLDER

Three subtasks of a source have list, union and broadcast state, with a type of every kind.
"""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_state.operator_state.operator_state_backend import OperatorStateBackend

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


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "operator_state")
