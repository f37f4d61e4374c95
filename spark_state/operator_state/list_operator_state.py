"""List state: split or union, which differ only in how a restore gives the items out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_state.operator_state.meta_info import OperatorStateMetaInfo
from spark_state.serializers import StructSerializer

Item = tuple[Any, ...]


class ListOperatorState:
    """Items of one type, in order. An item is a tuple, one value a field of the schema."""

    def __init__(self, meta_info: OperatorStateMetaInfo, items: Iterable[Item] = ()) -> None:
        self.meta_info = meta_info
        self.serializer = StructSerializer(
            meta_info.item_type, f"operator state {meta_info.name!r}"
        )
        self._items = list(items)

    def get(self) -> list[Item]:
        """The items. The list belongs to the caller, lists and dicts inside an item belong to the
        state."""
        return list(self._items)

    def add(self, item: Iterable[Any]) -> None:
        """Append an item. Raises StateValueError when it does not fit the schema."""
        self._items.append(self.serializer.to_state(item))

    def update(self, items: Iterable[Iterable[Any]]) -> None:
        """Replace all items. Raises StateValueError, with nothing replaced, when one is unfit."""
        self._items = [self.serializer.to_state(item) for item in items]

    def clear(self) -> None:
        """Remove all items."""
        self._items = []

    def copy_items(self) -> list[Item]:
        """The items of this moment, sharing nothing with the state that can change."""
        return [self.serializer.copy(item) for item in self._items]
