"""Checkpoint contents of a stopped query, without files, for tests of commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spark_state.spark.provider.query_checkpoint import (
    LogEntry,
    QueryCheckpoint,
    StatefulOperator,
    StoreDirectory,
)


def log_entry(path: str, content: Mapping[str, Any], last_line: str = "0") -> LogEntry:
    """A log file with this content, in Spark's format."""
    text = json.dumps(content, separators=(",", ":"))
    return LogEntry(path, f"v1\n{text}\n{last_line}", dict(content))


def operator_with(
    name: str = "stateStoreSave",
    number: int = 0,
    stores: tuple[str, ...] = ("default",),
    partitions: int = 2,
    properties: Mapping[str, Any] | None = None,
) -> StatefulOperator:
    """An operator with the directories of its partitions."""
    directories = tuple(
        StoreDirectory(number, partition, store, 0)
        for partition in range(partitions)
        for store in stores
    )
    infos = [{"storeName": store, "numColsPrefixKey": 0, "numPartitions": 2} for store in stores]
    noted = {"operatorInfo": {"operatorId": number, "operatorName": name}, "stateStoreInfo": infos}
    path = f"state/{number}/_metadata/metadata"
    return StatefulOperator(
        number, name, stores, partitions, directories, log_entry(path, noted), properties
    )


def stopped_checkpoint(**changes: Any) -> QueryCheckpoint:
    """A checkpoint with three done batches, without entries of the offset log and without files.
    `changes`: fields with other values."""
    stopped = QueryCheckpoint(
        url="file:/q",
        query_id="q",
        planned=2,
        committed=2,
        offsets={},
        commit=log_entry("commits/2", {}),
        operators=(operator_with(),),
        files=(),
    )
    return replace(stopped, **changes)
