"""What a store says of itself: fixed at its creation, the same for every writer of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Whose store it is. `max_parallelism` and the key's schema decide where each key lives."""

    store_id: str
    operator: str
    max_parallelism: int
    key_schema_json: str
    format_version: int = 1
