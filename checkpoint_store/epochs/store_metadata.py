"""The metadata of a store: fixed when the store is created, the same for every writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """The identity of a store. `max_parallelism` and the key's schema decide where each key
    lives."""

    store_id: str
    operator: str
    max_parallelism: int
    key_schema_json: str
