"""Every way to open a store retries for the user's number of seconds, and the error says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructType

from checkpoint_store.errors import StoreUnavailableError
from checkpoint_store.state_reader import open_store
from datasources.options.table_options import (
    parse_reader_options,
    parse_stream_options,
)
from datasources.options.version_choice import history_of
from datasources.reads.asked_columns import asked_columns
from datasources.sink.opened_tables import plan_of_sink
from datasources.streams.table_stream import TableStreamReader
from spark_state.live_state import live_view
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator

# These tests wait in real time.
pytestmark = pytest.mark.process

COLUMNS = StructType().add("id", LongType())


class AwayFileSystem(MemoryFileSystem):
    """A file system that does not answer."""

    protocol = "away"

    def cat_file(self, path: str, *_: Any, **__: Any) -> bytes:
        raise TimeoutError(f"no answer for {path}")


fsspec.register_implementation("away", AwayFileSystem, clobber=True)
OPTIONS = {"path": "away://tables/t", "storeRetrySeconds": "1"}


def open_in_a_host() -> None:
    spec = operator(Path())
    settings = replace(spec.checkpoints, store_retry_seconds=1)
    with Maintenance() as maintenance:
        Host(replace(spec, store_root="away://states", checkpoints=settings)).open(maintenance)


def open_as_a_stream() -> None:
    options = parse_stream_options({**OPTIONS, "readChangeFeed": "true"})
    stream = TableStreamReader(options, asked_columns("", COLUMNS))
    stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


WAYS: dict[str, Callable[[], object]] = {
    "open_store": lambda: open_store("away://tables/t", retry_seconds=1),
    "live_view": lambda: live_view("away://tables/t", retry_seconds=1),
    "a state host": open_in_a_host,
    "a batch read": lambda: history_of(parse_reader_options(OPTIONS)),
    "a stream": open_as_a_stream,
    "a sink": lambda: plan_of_sink(OPTIONS, COLUMNS),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_store_that_does_not_answer_is_tried_for_the_seconds_that_were_said(way: str) -> None:
    with pytest.raises(StoreUnavailableError, match=r"failed for 1 s, last with TimeoutError: no"):
        WAYS[way]()
