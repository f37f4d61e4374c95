"""Operator state for a processor, with the method names of PySpark's states.

    class Rules(StatefulProcessor):
        def init(self, handle):
            self._limits = handle.getBroadcastState("limits", "country string", "most double")
            self._counts = handle.getListOperatorState("counts", "payments bigint")

A processor gets copies: only the methods of a state change the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spark_state.codecs.codec import MakeRow
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.operator_state.broadcast_state import BroadcastOperatorState
from spark_state.operator_state.list_operator_state import Item, ListOperatorState
from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.operator_state.operator_state_backend import OperatorStateBackend


class OperatorListState:
    """List of a subtask, in mode split or union. Raises StateValueError for items that do not fit
    the schema."""

    def __init__(self, state: ListOperatorState, make_row: MakeRow) -> None:
        self._state = state
        self._names = tuple(field.name for field in state.meta_info.item_type)
        self._make_row = make_row

    def exists(self) -> bool:
        """Return True if the list has items."""
        return bool(self._state.get())

    def get(self) -> Iterator[Any]:
        """Yield the items as Rows. The items are copied when the caller takes the first item."""
        for item in self._state.copy_items():
            yield self._make_row(self._names, item)

    def put(self, newState: Iterable[Item]) -> None:
        """Replace all items."""
        self._state.update(newState)

    def appendValue(self, newState: Item) -> None:
        """Append one item."""
        self._state.add(newState)

    def appendList(self, newState: Iterable[Item]) -> None:
        """Append all items, or no item if an item does not fit."""
        self._state.extend(newState)

    def clear(self) -> None:
        """Remove all items."""
        self.put(())


class BroadcastMapState:
    """Map that is the same in every subtask. Only `handleBroadcastRows` may change the map."""

    def __init__(
        self, state: BroadcastOperatorState, make_row: MakeRow, owner: OperatorStates
    ) -> None:
        self._state = state
        item_type = state.meta_info.item_type
        self._to_key = _row_of(item_type.field("key").type, make_row)
        self._to_value = _row_of(item_type.field("value").type, make_row)
        self._owner = owner

    def exists(self) -> bool:
        """Return True if the map has entries."""
        return bool(self._state.items())

    def getValue(self, key: Item) -> Any:
        """Return the value of a key as a Row; None if there is no value."""
        value = self._state.get(key)
        return None if value is None else self._to_value(self._state.copy_value(value))

    def containsKey(self, key: Item) -> bool:
        """Return True if the key has a value."""
        return self._state.get(key) is not None

    def updateValue(self, key: Item, value: Item) -> None:
        """Set the value of a key."""
        self._writable().put(key, value)

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        """Yield pairs of a key and its value, both Rows. Changes of the map during the iteration do
        not affect the iteration."""
        for key, value in self._state.copy_items():
            yield self._to_key(key), self._to_value(value)

    def keys(self) -> Iterator[Any]:
        """Return the keys as Rows."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[Any]:
        """Return the values as Rows, in the order of the keys."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: Item) -> None:
        """Remove a key, if the key exists."""
        self._writable().remove(key)

    def clear(self) -> None:
        """Remove all keys."""
        self._writable().clear()

    def _writable(self) -> BroadcastOperatorState:
        if not self._owner.broadcasts_may_change:
            raise UnsupportedOperationError(
                f"broadcast state {self._state.meta_info.name!r} can be read here and not changed: "
                "subtasks have different rows, and their states would become different. Change it "
                "in handleBroadcastRows, which gets the same rows in every subtask"
            )
        return self._state


class OperatorStates:
    """Operator states that a processor declares, for one run of the processor. `make_row`: makes
    the Rows for the processor. `broadcasts_may_change`: True while `handleBroadcastRows` runs,
    because all subtasks run this method with the same rows."""

    def __init__(
        self,
        backend: OperatorStateBackend,
        meta_infos: Iterable[OperatorStateMetaInfo],
        make_row: MakeRow,
    ) -> None:
        self.broadcasts_may_change = False
        self._backend = backend
        self._make_row = make_row
        self._modes: dict[str, OperatorStateMode] = {}
        self._states: dict[str, OperatorListState | BroadcastMapState] = {}
        for meta_info in meta_infos:
            self.declare(meta_info)

    @property
    def broadcast(self) -> Mapping[str, BroadcastMapState]:
        """The broadcast states by name."""
        states = self._states.items()
        return {name: state for name, state in states if isinstance(state, BroadcastMapState)}

    def declare(self, meta_info: OperatorStateMetaInfo) -> OperatorListState | BroadcastMapState:
        """Add a state. Raises the errors of `OperatorStateBackend.register`."""
        name, state = meta_info.name, self._backend.register(meta_info)
        self._modes[name] = meta_info.mode
        self._states[name] = (
            OperatorListState(state, self._make_row)
            if isinstance(state, ListOperatorState)
            else BroadcastMapState(state, self._make_row, self)
        )
        return self._states[name]

    def look_up(self, mode: OperatorStateMode, name: str) -> OperatorListState | BroadcastMapState:
        """Return a declared state. Raises ConfigurationError if no state has this name and mode."""
        if self._modes.get(name) != mode:
            raise ConfigurationError(
                f"{mode} operator state {name!r} was not declared when the query was planned "
                f"(declared: {', '.join(sorted(self._modes)) or 'none'}); init must declare the "
                "same states always"
            )
        return self._states[name]


def _row_of(struct_type: Any, make_row: MakeRow) -> Callable[[Item], Any]:
    names = tuple(field.name for field in struct_type)
    return lambda values: make_row(names, values)
