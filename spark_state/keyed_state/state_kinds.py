"""The form of each kind of state: in the table, in files, and for processors.

declared             table             element     value               processors get
value                KeyedStateTable               tuple               ValueState
value that expires   KeyedElementTable ()          (tuple, expiry)     ValueState
list                 KeyedElementTable number      tuple               ListState
map                  KeyedElementTable user key    tuple               MapState
list, map, expiring  KeyedElementTable as above    (tuple, expiry)     ListState, MapState
timers               KeyedElementTable time        ()                  Timers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_state.codecs.codec import Forms
from spark_state.keyed_state.element_serializers import (
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    ValueSerializer,
)
from spark_state.keyed_state.expiring_tables import (
    EpochClock,
    ExpiringElements,
    ExpiringSerializer,
    ExpiringValues,
    expiry_of,
)
from spark_state.keyed_state.keyed_tables import DueTime
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.keyed_state.state_rows import StateSerializer
from spark_state.keyed_state.timers import Timers
from spark_state.keyed_state.value_state import ValueState
from spark_state.serializers import StructSerializer
from spark_state.state_descriptor import StateDescriptor, StateKind

State = ValueState | ListState | MapState | Timers


@dataclass(frozen=True, slots=True)
class StateForm:
    """The form of a state.

    - `serializer`: converts rows between the table and files.
    - `values`: converts the values that processors put.
    - `has_elements`: True if the table is a KeyedElementTable, False if it is a KeyedStateTable.
    - `due_time`: returns the due time of an element; None if elements never become due.
    - `seen`: returns a view of the table for processors, without expired elements.
    """

    serializer: StateSerializer[Any]
    values: Any
    has_elements: bool
    due_time: DueTime | None
    seen: Callable[[Any], Any] = lambda table: table


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A state's table for processors. `table`: the table, without expired elements; `values`:
    converts the values that processors put."""

    kind: StateKind
    table: Any
    values: Any


def form_of(descriptor: StateDescriptor, forms: Forms, clock: EpochClock) -> StateForm:
    """Return the form of a state. `forms`: Python forms of the values; `clock`: time that decides
    which values have expired."""
    owner, ttl_ms = f"state {descriptor.name!r}", descriptor.ttl_ms
    is_value = descriptor.kind == "value"
    values: Any
    match descriptor.kind:
        case "value":
            values = StructSerializer(descriptor.value_type, owner, forms)
        case "list":
            values = ListSerializer(descriptor.value_type, owner, forms)
        case "map":
            values = MapSerializer(descriptor.value_type, owner, forms)
        case "timers":
            values = TimerSerializer()
            return StateForm(values, values, True, lambda time_ms, _: time_ms)
    if ttl_ms is None:
        return StateForm(values, values, not is_value, None)

    def seen(table: Any) -> Any:
        elements: ExpiringElements[Any] = ExpiringElements(table, ttl_ms, clock)
        return ExpiringValues(elements) if is_value else elements

    elements = ExpiringSerializer(ValueSerializer(values) if is_value else values)
    return StateForm(elements, values, True, expiry_of, seen)


def state_of_key(opened: OpenTable) -> State:
    """Return an object with the methods of PySpark's states, which works on the current key."""
    match opened.kind:
        case "value":
            return ValueState(opened.table, opened.values)
        case "list":
            return ListState(opened.table, opened.values)
        case "map":
            return MapState(opened.table, opened.values)
        case "timers":
            return Timers(opened.table)
