"""The checkpoint of a query on the provider, written batch by batch without Spark."""

from __future__ import annotations

import json

from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.provider.provider_file_names import ProviderFileName
from tests.support.provider.provider_file_bytes import (
    Row,
    changelog,
    file_bytes,
    schema_json,
    state_schema,
)

NUMBERS = schema_json("number", "long")
TEXTS = schema_json("text", "string")
# The changes of each batch, the same in every partition. A partition adds 100 times its number to
# the keys.
CHANGES: list[list[Row]] = [
    [(1, "a"), (2, "b"), (3, "c")],
    [(2, None), (1, "aa"), (1, "aaa")],
    [(4, "d"), (4, None), (3, None), (3, "cc")],
    [(3, "cc")],
]
STATES = [
    {1: "a", 2: "b", 3: "c"},
    {1: "aaa", 3: "c"},
    {1: "aaa", 3: "cc"},
    {1: "aaa", 3: "cc"},
]
PARTITIONS = 2
State = dict[int, str]


def directory(partition: int, store_name: str | None = None) -> str:
    return f"state/0/{partition}" if store_name is None else f"state/0/{partition}/{store_name}"


def moved(rows: list[Row], partition: int) -> list[Row]:
    return [(number + 100 * partition, text) for number, text in rows]


def of_all(state: State) -> State:
    return {
        number + 100 * partition: text
        for partition in range(PARTITIONS)
        for number, text in state.items()
    }


def put(store: ObjectStore, partition: int, name: ProviderFileName, rows: list[Row]) -> None:
    store.put(f"{directory(partition)}/{name}", file_bytes(name, moved(rows, partition)))


def write_metadata(store: ObjectStore, *names: str, query_id: str = "query") -> None:
    """Write Spark's metadata of a query and of the query's only operator, which has the stores
    `names`."""
    store.put("metadata", json.dumps({"id": query_id}).encode())
    infos = [
        {"storeName": name, "numColsPrefixKey": 0, "numPartitions": PARTITIONS} for name in names
    ]
    operator = {"operatorId": 0, "operatorName": "stateStoreSave"}
    text = json.dumps({"operatorInfo": operator, "stateStoreInfo": infos})
    store.put("state/0/_metadata/metadata", f"v1\n{text}".encode())
    for name in names:
        where = directory(0, None if name == "default" else name)
        store.put(f"{where}/_metadata/schema", state_schema(NUMBERS, TEXTS))


def commit(store: ObjectStore, batch: int) -> None:
    store.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def write_batch(store: ObjectStore, batch: int) -> None:
    for partition in range(PARTITIONS):
        put(store, partition, changelog(batch + 1), CHANGES[batch])
    commit(store, batch)
