"""Operator state as a processor gets it, with the names of the methods of PySpark's states.

    class Rules(StatefulProcessor):
        def init(self, handle):
            self._limits = handle.getBroadcastState("limits", "country string", "most double")
            self._counts = handle.getListOperatorState("counts", "payments bigint")

What a processor gets is its own: changes reach the state by the methods of the state only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spark_state.codecs.codec import MakeRow
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.operator_state.broadcast_state import BroadcastOperatorState
from spark_state.operator_state.list_operator_state import ListOperatorState
from spark_state.operator_state.meta_info import OperatorStateMetaInfo, OperatorStateMode
from spark_state.operator_state.operator_state_backend import OperatorStateBackend

Item = tuple[Any, ...]


class OperatorListState:
    """A list of the subtask, split or union. Raises StateValueError for items that do not fit."""

    def __init__(self, state: ListOperatorState, make_row: MakeRow) -> None:
        self._state = state
        self._names = tuple(field.name for field in state.meta_info.item_type)
        self._make_row = make_row

    def exists(self) -> bool:
        """Whether the list has items."""
        return bool(self._state.get())

    def get(self) -> Iterator[Any]:
        """The items as Rows, as they are when the first one is taken."""
        for item in self._state.copy_items():
            yield self._make_row(self._names, item)

    def put(self, newState: Iterable[Item]) -> None:
        """Replace all items."""
        self._state.update(newState)

    def appendValue(self, newState: Item) -> None:
        """Append one item."""
        self._state.add(newState)

    def appendList(self, newState: Iterable[Item]) -> None:
        """Append all items, or none if one of them does not fit."""
        self._state.extend(newState)

    def clear(self) -> None:
        """Remove all items."""
        self.put(())


class BroadcastSide:
    """Whether broadcast states may be changed: while `handleBroadcastRows` runs, because all
    subtasks run it with the same rows."""

    def __init__(self) -> None:
        self.is_open = False


class BroadcastMapState:
    """A map that is the same in every subtask; it changes on the broadcast side only."""

    def __init__(
        self, state: BroadcastOperatorState, make_row: MakeRow, side: BroadcastSide
    ) -> None:
        self._state = state
        item_type = state.meta_info.item_type
        self._to_key = _row_of(item_type.field("key").type, make_row)
        self._to_value = _row_of(item_type.field("value").type, make_row)
        self._side = side

    def exists(self) -> bool:
        """Whether the map has entries."""
        return bool(self._state.items())

    def getValue(self, key: Item) -> Any:
        """The value of a key as a Row, None if it has none."""
        value = self._state.get(key)
        return None if value is None else self._to_value(self._state.copy_value(value))

    def containsKey(self, key: Item) -> bool:
        """Whether the key has a value."""
        return self._state.get(key) is not None

    def updateValue(self, key: Item, value: Item) -> None:
        """Set the value of a key."""
        self._writable().put(key, value)

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        """The keys, each with its value, as Rows. What is set or removed meanwhile does not change
        what comes."""
        for key, value in self._state.copy_items():
            yield self._to_key(key), self._to_value(value)

    def keys(self) -> Iterator[Any]:
        """The keys as Rows."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[Any]:
        """The values as Rows, in the order of the keys."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: Item) -> None:
        """Remove a key, if it is there."""
        self._writable().remove(key)

    def clear(self) -> None:
        """Remove all keys."""
        self._writable().clear()

    def _writable(self) -> BroadcastOperatorState:
        if not self._side.is_open:
            raise UnsupportedOperationError(
                f"broadcast state {self._state.meta_info.name!r} can be read here and not changed: "
                "subtasks have different rows, and their states would become different. Change it "
                "in handleBroadcastRows, which gets the same rows in every subtask"
            )
        return self._state


class OperatorStates:
    """The operator states that a processor declares, in one run of it. `make_row`: of the Rows that
    it gets."""

    def __init__(
        self,
        backend: OperatorStateBackend,
        meta_infos: Iterable[OperatorStateMetaInfo],
        make_row: MakeRow,
    ) -> None:
        self.broadcast_side = BroadcastSide()
        self._backend = backend
        self._make_row = make_row
        self._modes: dict[str, OperatorStateMode] = {}
        self._lists: dict[str, OperatorListState] = {}
        self._maps: dict[str, BroadcastMapState] = {}
        for meta_info in meta_infos:
            self.declare(meta_info)

    @property
    def broadcast(self) -> Mapping[str, BroadcastMapState]:
        """The broadcast states by name."""
        return self._maps

    def declare(self, meta_info: OperatorStateMetaInfo) -> OperatorListState | BroadcastMapState:
        """Add a state. Raises what OperatorStateBackend.register raises."""
        name, state = meta_info.name, self._backend.register(meta_info)
        self._modes[name] = meta_info.mode
        if isinstance(state, ListOperatorState):
            return self._lists.setdefault(name, OperatorListState(state, self._make_row))
        of_processor = BroadcastMapState(state, self._make_row, self.broadcast_side)
        return self._maps.setdefault(name, of_processor)

    def look_up(self, mode: OperatorStateMode, name: str) -> OperatorListState | BroadcastMapState:
        """A declared state. Raises ConfigurationError if there is none of this name and mode."""
        if self._modes.get(name) != mode:
            raise ConfigurationError(
                f"{mode} operator state {name!r} was not declared when the query was planned "
                f"(declared: {', '.join(sorted(self._modes)) or 'none'}); init must declare the "
                "same states always"
            )
        return self._maps[name] if mode == "broadcast" else self._lists[name]


def _row_of(struct_type: Any, make_row: MakeRow) -> Callable[[Item], Any]:
    names = tuple(field.name for field in struct_type)
    return lambda values: make_row(names, values)
