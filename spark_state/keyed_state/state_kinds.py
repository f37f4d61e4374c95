"""How each kind of state is kept: what its table holds, what files hold, what processors get.

declared             table             element     value               processors get
value                KeyedStateTable               tuple               ValueState
value that expires   KeyedElementTable ()          (tuple, expiry)     ValueState
list                 KeyedElementTable its number  tuple               ListState
map                  KeyedElementTable user key    tuple               MapState
list, map, expiring  KeyedElementTable as above    (tuple, expiry)     ListState, MapState
timers               KeyedElementTable its time    ()                  Timers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_state.keyed_state.element_serializers import (
    ElementSerializer,
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
from spark_state.keyed_state.keyed_element_table import DueTime
from spark_state.keyed_state.list_state import ListState
from spark_state.keyed_state.map_state import MapState
from spark_state.keyed_state.state_serializer import StateSerializer
from spark_state.keyed_state.timers import Timers
from spark_state.keyed_state.value_state import ValueState
from spark_state.serializers import Forms, StructSerializer
from spark_state.state_descriptor import StateDescriptor

State = ValueState | ListState | MapState | Timers


@dataclass(frozen=True, slots=True)
class KeptState:
    """`serializer`: of what its files hold. `has_elements`: whether its table is one of elements;
    `due_time`: when an element of it is due, None if never. `open`: the state on its table."""

    serializer: StateSerializer[Any]
    has_elements: bool
    due_time: DueTime | None
    open: Callable[[Any], State]


def kept_state(descriptor: StateDescriptor, forms: Forms, clock: EpochClock) -> KeptState:
    """How a state is kept; `clock` says what has expired."""
    owner = f"state {descriptor.name!r}"
    match descriptor.kind:
        case "value":
            values = StructSerializer(descriptor.value_type, owner, forms)
            return _kept_value(values, descriptor, clock)
        case "list":
            lists = ListSerializer(descriptor.value_type, owner, forms)
            return _kept_elements(lists, descriptor, clock, lambda table: ListState(table, lists))
        case "map":
            maps = MapSerializer(descriptor.value_type, owner, forms)
            return _kept_elements(maps, descriptor, clock, lambda table: MapState(table, maps))
        case "timers":
            return KeptState(TimerSerializer(), True, lambda time_ms, _: time_ms, Timers)


def _kept_value(
    values: StructSerializer, descriptor: StateDescriptor, clock: EpochClock
) -> KeptState:
    if descriptor.ttl_ms is None:
        return KeptState(values, False, None, lambda table: ValueState(table, values))
    return _kept_elements(
        ValueSerializer(values),
        descriptor,
        clock,
        lambda elements: ValueState(ExpiringValues(elements), values),
    )


def _kept_elements(
    elements: ElementSerializer[Any],
    descriptor: StateDescriptor,
    clock: EpochClock,
    open_state: Callable[[Any], State],
) -> KeptState:
    ttl_ms = descriptor.ttl_ms
    if ttl_ms is None:
        return KeptState(elements, True, None, open_state)
    return KeptState(
        ExpiringSerializer(elements),
        True,
        expiry_of,
        lambda table: open_state(ExpiringElements(table, ttl_ms, clock)),
    )
