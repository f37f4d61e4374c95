"""A stream of the objects of a store, read without a Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from checkpoint_store import open_history
from checkpoint_store.objects.object_store import ObjectStore
from datasources.options.table_options import parse_stream_options
from datasources.reads.asked_columns import asked_columns
from datasources.streams.stream_offset import Offset
from datasources.streams.table_stream import TableStreamReader
from tests.support.stores.damage import sorted_rows
from tests.support.stores.fake_object_store import DictObjectStore


def streamed(
    objects: DictObjectStore,
    columns: StructType,
    start: Offset,
    limit: ReadLimit | None = None,
    **options: str,
) -> tuple[Offset, list[tuple[Any, ...]]]:
    """The offset at which a stream arrives from offset `start`, and the rows between both
    offsets."""
    with _stream_of(objects, columns, options) as stream:
        end = stream.latestOffset(start, limit or ReadAllAvailable())
        return end, _rows_between(stream, start, end)


def streamed_in_batches(
    objects: DictObjectStore, columns: StructType, **options: str
) -> list[list[tuple[Any, ...]]]:
    """The rows of each batch of a stream, from the start in the stream's options until nothing is
    left."""
    with _stream_of(objects, columns, options) as stream:
        batches = []
        start, limit = stream.initialOffset(), stream.getDefaultReadLimit()
        while (end := stream.latestOffset(start, limit)) != start:
            batches.append(_rows_between(stream, start, end))
            start = end
        return batches


@contextmanager
def _stream_of(
    objects: DictObjectStore, columns: StructType, options: Mapping[str, str]
) -> Iterator[TableStreamReader]:
    def opened(url: str, storage_options: Mapping[str, Any] | None = None) -> ObjectStore:
        assert (url, storage_options or {}) == (objects.url, {})
        return objects

    with mock.patch.object(open_history, "open_object_store", opened):
        parsed = parse_stream_options({"path": objects.url, "stateCacheBytes": "0", **options})
        stream = TableStreamReader(parsed, asked_columns("", columns))
        yield stream
        stream.stop()


def _rows_between(stream: TableStreamReader, start: Offset, end: Offset) -> list[tuple[Any, ...]]:
    batches = [b for part in stream.partitions(start, end) for b in stream.read(part)]
    return sorted_rows(pa.Table.from_batches(batches)) if batches else []
