"""Broadcast state: a map that every subtask holds whole, such as options or rules.

Every subtask must make the same changes, so that all maps stay equal: a restore may give a subtask
the map of another subtask. Keys are frozen, so that every NaN is the same key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from spark_state.codecs.codec import Forms
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import ConfigurationError
from spark_state.frozen_keys import FrozenKeys, frozen
from spark_state.operator_state.list_operator_state import Item
from spark_state.operator_state.meta_info import OperatorStateMetaInfo
from spark_state.serializers import StructSerializer

Entries = dict[Item, Item]


def broadcast_item_type(key_type: pa.StructType, value_type: pa.StructType) -> pa.StructType:
    """Return the type of an entry in a snapshot: a struct with the fields `key` and `value`."""
    return pa.struct([pa.field("key", key_type, False), pa.field("value", value_type, False)])


class BroadcastOperatorState:
    """Values by key. Keys and values are tuples, one value per field of the schemas. `forms`:
    Python forms of the values' nested structs and timestamps."""

    def __init__(
        self,
        meta_info: OperatorStateMetaInfo,
        items: Iterable[Item] = (),
        forms: Forms = PLAIN_FORMS,
    ) -> None:
        owner = f"operator state {meta_info.name!r}"
        self.meta_info = meta_info
        self.serializer = StructSerializer(meta_info.item_type, owner, forms)
        key_type: Any = meta_info.item_type.field("key").type
        value_type: Any = meta_info.item_type.field("value").type
        keys = StructSerializer(key_type, f"key of {owner}")
        self._keys = FrozenKeys(keys)
        self._values = StructSerializer(value_type, owner, forms)
        if not keys.immutable:
            raise ConfigurationError(
                f"the key of {owner} is {key_type}, which can change; use fields without lists and "
                "maps"
            )
        self._entries: Entries = {frozen(tuple(key)): tuple(value) for key, value in items}
        self._is_shared = False

    def get(self, key: Iterable[Any]) -> Item | None:
        """Return the value of a key; None if there is no value. Raises StateValueError for a key of
        another type."""
        return self._entries.get(self._keys.freeze(key))

    def put(self, key: Iterable[Any], value: Iterable[Any]) -> None:
        """Set a value. Raises StateValueError if key or value do not fit the schemas."""
        frozen_key, state = self._keys.freeze(key), self._values.to_state(value)
        self._own()[frozen_key] = state

    def remove(self, key: Iterable[Any]) -> None:
        """Remove a key's value, if there is a value."""
        frozen_key = self._keys.freeze(key)
        if frozen_key in self._entries:
            del self._own()[frozen_key]

    def items(self) -> list[tuple[Item, Item]]:
        """Return all keys with their values, in the order of the keys' first `put`."""
        return list(self._entries.items())

    def clear(self) -> None:
        """Remove all keys."""
        self.take_back({})

    def copy_value(self, value: Item) -> Item:
        """Return a copy of a value. The copy shares nothing mutable with the state."""
        return self._values.copy(value)

    def copy_items(self) -> list[Item]:
        """Return a copy of the current entries. The copy shares nothing mutable with the state."""
        return [self.serializer.copy(entry) for entry in self._entries.items()]

    def share(self) -> Entries:
        """Return the current entries. The state makes later changes in a copy, so the returned
        entries never change."""
        self._is_shared = True
        return self._entries

    def take_back(self, entries: Entries) -> None:
        """Set the state's entries to the result of an earlier call of `share`."""
        self._entries, self._is_shared = entries, True

    def is_at(self, entries: Entries) -> bool:
        """Return True if nothing has changed since `share` returned these entries."""
        return self._entries is entries

    def _own(self) -> Entries:
        if self._is_shared:
            self._entries, self._is_shared = dict(self._entries), False
        return self._entries
