"""The states and timers of a query's keys, read by Spark's reader and by cowstate's reader.

Both readers give an entry for each key with content. Value: a tuple. List: the tuples in order.
Map: value tuples by user-key tuples. Timers: the times in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from checkpoint_store.state_reader import open_store
from tests.support.processors.scripted_processor import ScriptedState
from tests.support.processors.tws_runner import Content


def in_checkpoint(spark: SparkSession, checkpoint: Path, state: ScriptedState) -> Content:
    """A state of Spark's own operator after its last batch."""
    reader = spark.read.format("statestore").option("stateVarName", state.name)
    content: Content = {}
    for row in reader.load(str(checkpoint)).collect():
        if state.kind == "value":
            content[row.key.key] = _fields(row.value, state)
        elif state.kind == "list":
            content.setdefault(row.key.key, []).append(_fields(row.list_element, state))
        else:
            entries = content.setdefault(row.key.key, {})
            entries[tuple(row.user_map_key)] = _fields(row.user_map_value, state)
    return content


def _fields(stored: Any, state: ScriptedState) -> tuple[Any, ...]:
    return tuple(stored if state.ttl_ms is None else stored.value)


def timers_in_checkpoint(spark: SparkSession, checkpoint: Path) -> Content:
    """The timers of Spark's own operator after its last batch."""
    reader = spark.read.format("statestore").option("readRegisteredTimers", "true")
    content: Content = {}
    for row in sorted(reader.load(str(checkpoint)).collect(), key=lambda row: row[1]):
        content.setdefault(row.key.key, []).append(row.expiration_timestamp_ms)
    return content


def in_store(store: Path, state: ScriptedState, epoch: int) -> Content:
    """A state of cowstate after an epoch."""
    content: Content = {}
    for row in open_store(str(store), state=state.name).read(epoch).to_pylist():
        if state.kind == "value":
            key, *fields = row.values()
            content[key] = tuple(fields)
        elif state.kind == "list":
            content[row["key"]] = [tuple(element.values()) for element in row["list_value"]]
        else:
            content[row["key"]] = {
                tuple(user_key.values()): tuple(value.values())
                for user_key, value in row["map_value"]
            }
    return content


def timers_in_store(store: Path, timers: str, epoch: int) -> Content:
    """The timers of cowstate after an epoch. `timers`: the name of the state that holds the
    timers."""
    content: Content = {}
    rows = open_store(str(store), state=timers).read(epoch).to_pylist()
    for row in sorted(rows, key=lambda row: row["expiry_ms"]):
        content.setdefault(row["key"], []).append(row["expiry_ms"])
    return content
