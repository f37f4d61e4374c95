"""A stream of the objects of a store, read without a session of Spark."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from datasources.asked_columns import asked_columns
from datasources.table_options import parse_stream_options
from datasources.table_stream import Offset, TableStreamReader
from tests.support.damage import sorted_rows
from tests.support.fake_object_store import DictObjectStore


def streamed(
    objects: DictObjectStore,
    columns: StructType,
    start: Offset,
    limit: ReadLimit | None = None,
    **options: str,
) -> tuple[Offset, list[tuple[Any, ...]]]:
    """Where a stream arrives from an offset, and the rows on the way."""
    with TemporaryDirectory() as directory:
        for name, data in objects.objects.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        parsed = parse_stream_options({"path": directory, "stateCacheBytes": "0", **options})
        stream = TableStreamReader(parsed, asked_columns("", columns))
        end = stream.latestOffset(start, limit or ReadAllAvailable())
        batches = [b for part in stream.partitions(start, end) for b in stream.read(part)]
        stream.stop()
        return end, sorted_rows(pa.Table.from_batches(batches)) if batches else []
