"""The metadata of a store: fixed when the store is created, the same for every writer."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from checkpoint_store.errors import StoreMismatchError
from checkpoint_store.files.schema_columns import are_same_types

# The fields that tell stores apart, each with its comparison. An adopted key may have nulls where
# the operator's plan rules nulls out.
_SAME: Mapping[str, Callable[[Any, Any], bool]] = {
    "operator": operator.eq,
    "max_parallelism": operator.eq,
    "key_schema_json": are_same_types,
    "store_id": operator.eq,
}


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """The identity of a store. `max_parallelism` and the key's schema decide the key group of each
    key."""

    store_id: str
    operator: str
    max_parallelism: int
    key_schema_json: str

    def check_same(self, expected: StoreMetadata, url: str) -> None:
        """Raise StoreMismatchError, with the first differing field and both values, if this
        metadata differs from `expected`. `url`: the store from which this metadata was read."""
        for field, same in _SAME.items():
            actual, wanted = getattr(self, field), getattr(expected, field)
            if not same(actual, wanted):
                raise StoreMismatchError(url, field, str(actual), str(wanted))
