"""Broadcast state: a map that every subtask holds whole, such as options or rules.

Whoever changes it makes the same change on every subtask: a restore takes any subtask's copy for
the state of all. Keys are frozen, so that every NaN is one key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from spark_state.errors import ConfigurationError
from spark_state.frozen_keys import FrozenKeys
from spark_state.operator_state.meta_info import OperatorStateMetaInfo
from spark_state.serializers import StructSerializer

Item = tuple[Any, ...]


def broadcast_item_type(key_type: pa.StructType, value_type: pa.StructType) -> pa.StructType:
    """The type of an entry, as an item of a snapshot."""
    return pa.struct([pa.field("key", key_type, False), pa.field("value", value_type, False)])


class BroadcastOperatorState:
    """Values by key. Keys and values are tuples, one value a field of their schemas."""

    def __init__(self, meta_info: OperatorStateMetaInfo, items: Iterable[Item] = ()) -> None:
        owner = f"operator state {meta_info.name!r}"
        self.meta_info = meta_info
        self.serializer = StructSerializer(meta_info.item_type, owner)
        key_type: Any = meta_info.item_type.field("key").type
        value_type: Any = meta_info.item_type.field("value").type
        keys = StructSerializer(key_type, f"key of {owner}")
        self._keys = FrozenKeys(keys)
        self._values = StructSerializer(value_type, owner)
        if not keys.immutable:
            raise ConfigurationError(
                f"the key of {owner} is {key_type}, which can change; use fields without lists and "
                "maps"
            )
        stored = list(items)
        frozen = self._keys.freeze_all(key for key, _ in stored)
        self._entries = dict(zip(frozen, (value for _, value in stored), strict=True))

    def get(self, key: Iterable[Any]) -> Item | None:
        """The value, None when there is none. Raises StateValueError for a key of another type."""
        return self._entries.get(self._keys.freeze(key))

    def put(self, key: Iterable[Any], value: Iterable[Any]) -> None:
        """Set a value. Raises StateValueError when key or value do not fit the schemas."""
        self._entries[self._keys.freeze(key)] = self._values.to_state(value)

    def remove(self, key: Iterable[Any]) -> None:
        """Remove a key's value, if there is one."""
        self._entries.pop(self._keys.freeze(key), None)

    def items(self) -> list[tuple[Item, Item]]:
        """All keys with their values, in the order in which the keys were first put."""
        return list(self._entries.items())

    def clear(self) -> None:
        """Remove all keys."""
        self._entries = {}

    def copy_items(self) -> list[Item]:
        """The entries of this moment, sharing nothing with the state that can change."""
        return [self.serializer.copy(entry) for entry in self._entries.items()]
