"""Random events in batches, the same for a seed: late events, null keys, texts of any length.

The clock of batch n runs from minute n to minute n + 1. Most events lie in this minute. Some events
are a little late, and some are so late that a watermark of one minute drops them.
"""

from __future__ import annotations

import os
import random
import shutil
import string
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

EVENT_SCHEMA = "key string, moment timestamp, text string, amount bigint"
LONGEST_TEXT = 200
_START = datetime(2024, 5, 1, tzinfo=UTC)
_ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.string(),
    "moment": pa.timestamp("us", "UTC"),
    "text": pa.string(),
    "amount": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class EventShape:
    """The number of events in a batch, the number of keys, and the percentage of events with a null
    key."""

    rows: int
    keys: int
    null_percent: int = 5


def _moment(chance: random.Random, batch: int) -> datetime:
    late = chance.choices((0, 30, 90, 400), weights=(70, 15, 10, 5))[0]
    return _START + timedelta(seconds=60 * batch + chance.randrange(60) - late)


def _text(chance: random.Random) -> str:
    length = chance.choice((0, 7, 8, chance.randrange(LONGEST_TEXT + 1)))
    return "".join(chance.choices(string.ascii_lowercase + "äß€", k=length))


def _event(chance: random.Random, batch: int, shape: EventShape) -> dict[str, object]:
    has_key = chance.randrange(100) >= shape.null_percent
    return {
        "key": f"key{chance.randrange(shape.keys)}" if has_key else None,
        "moment": _moment(chance, batch),
        "text": _text(chance),
        "amount": chance.randrange(1000),
    }


def write_batches(folder: Path, seed: int, batches: int, shape: EventShape) -> list[Path]:
    """Write one file for each batch. Modification times increase, so that a file source keeps the
    order."""
    folder.mkdir(parents=True)
    schema = pa.schema(_ARROW_TYPES)
    chance = random.Random(seed)
    files = []
    for batch in range(batches):
        events = [_event(chance, batch, shape) for _ in range(shape.rows)]
        file = folder / f"{batch:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(events, schema=schema), file)
        os.utime(file, (1_700_000_000 + batch,) * 2)
        files.append(file)
    return files


def deliver(files: list[Path], folder: Path) -> None:
    """Copy files with their modification times into the folder that a query reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)
