"""List and map states are readable as tables without Spark: values, changes and a live view."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType

from checkpoint_store.state_reader import open_store
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, operator
from tests.support.processors.processors import KeepsValues
from tests.support.tables.table_rows_of import schema_json

ITEM = StructType([StructField("ratio", DoubleType()), StructField("path", ArrayType(LongType()))])


class SetsEntries(StatefulProcessor):
    """Sets a key's list and map to the entry of VALUES with the row's number."""

    def init(self, handle: Any) -> None:
        self._items = handle.getListState("items", ITEM)
        self._counts = handle.getMapState("counts", ITEM, "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            chosen = VALUES[row.value]
            self._items.put(chosen)
            self._counts.clear()
            for item in chosen:
                self._counts.updateValue(item, (len(chosen),))
        return iter([])

    def close(self) -> None:
        pass


VALUES: list[list[tuple[Any, Any]]] = [
    [(math.nan, [1, None]), (None, None)],
    [(None, None), (math.nan, [1, None])],
    [(1.0, [])],
    [],
]


def as_dicts(items: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"ratio": ratio, "path": path} for ratio, path in items]


def host_of(folder: Path, maintenance: Maintenance, processor: StatefulProcessor) -> Host:
    spec = operator(folder, processor, key_schema_json=schema_json(key="string"))
    return Host(spec).open(maintenance)


def url_of(host: Host) -> str:
    return host.request(0, 0).store_url


def test_a_list_or_map_is_one_column_beside_the_key(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    host = host_of(tmp_path, maintenance, KeepsValues())
    host.epoch(0, [("a", 1), ("b", 2), ("a", 3)])
    host.epoch(1, [("a", 1)])
    items, counts = (open_store(url_of(host), state=state) for state in ("items", "counts"))
    assert items.schema().equals(
        pa.schema(
            [
                ("key", pa.string()),
                ("list_value", pa.list_(pa.field("element", pa.struct([("value", pa.int64())])))),
            ]
        )
    )
    assert sorted(items.read().to_pylist(), key=repr) == [
        {"key": "a", "list_value": [{"value": 1}, {"value": 3}, {"value": 1}]},
        {"key": "b", "list_value": [{"value": 2}]},
    ]
    assert sorted(counts.read(0).to_pylist(), key=repr) == [
        {"key": "a", "map_value": [({"value": 1}, {"times": 1}), ({"value": 3}, {"times": 1})]},
        {"key": "b", "map_value": [({"value": 2}, {"times": 1})]},
    ]
    changes = counts.changes(0).drop(["_commit_timestamp"]).to_pylist()
    assert [(change["_change_type"], dict_of(change["map_value"])) for change in changes] == [
        ("update_preimage", {1: 1, 3: 1}),
        ("update_postimage", {1: 2, 3: 1}),
    ]


def dict_of(entries: list[tuple[dict[str, int], dict[str, int]]]) -> dict[int, int]:
    return {key["value"]: value["times"] for key, value in entries}


def kinds(host: Host, state: str, epoch: int) -> list[str]:
    change_types: list[str] = (
        open_store(url_of(host), state=state).changes(epoch - 1)["_change_type"].to_pylist()
    )
    return change_types


def test_what_an_epoch_did_is_told_by_whole_values(
    tmp_path: Path, maintenance: Maintenance
) -> None:
    host = host_of(tmp_path, maintenance, SetsEntries())
    host.epoch(0, [("a", 0), ("b", 0), ("c", 0), ("d", 0)])
    host.epoch(1, [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 3)])
    # The order of a list counts, the order of a map does not.
    assert sorted(kinds(host, "items", 1)) == [
        "delete", "update_postimage", "update_postimage", "update_preimage", "update_preimage"
    ]  # fmt: skip
    assert sorted(kinds(host, "counts", 1)) == ["delete", "update_postimage", "update_preimage"]
    read = open_store(url_of(host), state="items").read()
    assert {row["key"]: repr(row["list_value"]) for row in read.to_pylist()} == {
        key: repr(as_dicts(VALUES[value])) for key, value in (("a", 0), ("b", 1), ("c", 2))
    }
