"""List state, in mode split or union. The modes differ only in how a restore deals out the
items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_state.codecs.codec import Forms
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.operator_state.meta_info import OperatorStateMetaInfo
from spark_state.serializers import StructSerializer

Item = tuple[Any, ...]


class ListOperatorState:
    """Items of one type, in order. An item is a tuple, one value per field of the schema. `forms`:
    Python forms of nested structs and timestamps."""

    def __init__(
        self,
        meta_info: OperatorStateMetaInfo,
        items: Iterable[Item] = (),
        forms: Forms = PLAIN_FORMS,
    ) -> None:
        self.meta_info = meta_info
        self.serializer = StructSerializer(
            meta_info.item_type, f"operator state {meta_info.name!r}", forms
        )
        self._items = list(items)
        self._is_shared = False

    def get(self) -> list[Item]:
        """Return the items in a new list. Lists and dicts inside an item belong to the state."""
        return list(self._items)

    def add(self, item: Iterable[Any]) -> None:
        """Append an item. Raises StateValueError if the item does not fit the schema."""
        self.extend([item])

    def extend(self, items: Iterable[Iterable[Any]]) -> None:
        """Append items. Raises StateValueError, with nothing appended, if an item does not fit."""
        added = [self.serializer.to_state(item) for item in items]
        if self._is_shared:
            self._items, self._is_shared = list(self._items), False
        self._items += added

    def update(self, items: Iterable[Iterable[Any]]) -> None:
        """Replace all items. Raises StateValueError, with nothing replaced, if an item does not
        fit."""
        self.take_back([self.serializer.to_state(item) for item in items])

    def clear(self) -> None:
        """Remove all items."""
        self.take_back([])

    def copy_items(self) -> list[Item]:
        """Return a copy of the current items. The copy shares nothing mutable with the state."""
        return [self.serializer.copy(item) for item in self._items]

    def share(self) -> list[Item]:
        """Return the current items. The state makes later changes in a copy, so the returned list
        never changes."""
        self._is_shared = True
        return self._items

    def take_back(self, items: list[Item]) -> None:
        """Set the state's items to the result of an earlier call of `share`."""
        self._items, self._is_shared = items, True

    def is_at(self, items: list[Item]) -> bool:
        """Return True if nothing has changed since `share` returned these items."""
        return self._items is items
