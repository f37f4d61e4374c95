"""The processor's handles: what init may declare, and what this release refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.processor.handles import record_states, serving_handle
from spark_state.serializers import PLAIN_FORMS
from spark_state.state_descriptor import StateDescriptor, StateKind

Init = Callable[[Any], Any]


class Scripted:
    """A processor whose init is given; it remembers being closed."""

    def __init__(self, init: Init) -> None:
        self._init = init
        self.closed = False

    def init(self, handle: Any) -> None:
        self._init(handle)

    def close(self) -> None:
        self.closed = True


def describe(kind: StateKind, name: str, schemas: tuple[Any, ...]) -> StateDescriptor:
    return StateDescriptor(name, kind, pa.struct([("x", pa.int64())]), " -> ".join(schemas))


def recorded(init: Init) -> tuple[StateDescriptor, ...]:
    return record_states(Scripted(init), describe)


def test_init_declares_its_states_in_order_and_is_closed() -> None:
    def init(handle: Any) -> None:
        handle.getValueState("b", "x int")
        handle.getValueState(stateName="a", schema="y int", ttlDurationMs=None)
        handle.getListState(stateName="l", schema="z int", ttlDurationMs=None)
        handle.getMapState("m", userKeySchema="k int", valueSchema="v int", ttlDurationMs=None)

    processor = Scripted(init)
    states = record_states(processor, describe)
    assert [(state.kind, state.name, state.schema_json) for state in states] == [
        ("value", "b", "x int"),
        ("value", "a", "y int"),
        ("list", "l", "z int"),
        ("map", "m", "k int -> v int"),
    ]
    assert processor.closed


REFUSED: list[tuple[Init, str]] = [
    (
        lambda handle: handle.getValueState("v", "x int", 1000),
        "time to live .1000 ms. of state 'v'",
    ),
    (
        lambda handle: handle.getListState("l", "x int", 1000),
        "time to live .1000 ms. of state 'l'",
    ),
    (
        lambda handle: handle.getMapState("m", "k int", "v int", 1000),
        "time to live .1000 ms. of state 'm'",
    ),
    (lambda handle: handle.registerTimer(5), "timer 5 is not supported"),
    (lambda handle: handle.deleteTimer(5), "deleting timer 5 is not supported"),
    (lambda handle: handle.listTimers(), "listing timers is not supported"),
    (lambda handle: handle.deleteIfExists("v"), "deleting state 'v' is not supported"),
    (lambda handle: handle.getValueState("v", "x int").get(), r"init used state 'v' \(get\)"),
    (
        lambda handle: handle.getListState("l", "x int").appendValue((1,)),
        r"init used state 'l' \(appendValue\)",
    ),
]


@pytest.mark.parametrize(("init", "message"), REFUSED)
def test_what_is_not_supported_is_refused_on_the_driver(init: Init, message: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=message):
        recorded(init)


@pytest.mark.parametrize("init", [init for init, message in REFUSED if "time" in message])
def test_what_needs_time_is_refused_without_sending_to_another_time_mode(init: Init) -> None:
    with pytest.raises(UnsupportedOperationError) as caught:
        recorded(init)
    message = str(caught.value)
    assert "in whatever time mode" in message
    assert 'time mode "None"' not in message
    assert "keep a time in the state" in message.lower()


def test_a_state_declared_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="state 'v' is declared twice"):
        recorded(
            lambda handle: [handle.getValueState("v", "x int"), handle.getListState("v", "x int")]
        )


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a state's name is a non-empty str"):
        recorded(lambda handle: handle.getValueState(name, "x int"))


def test_a_state_that_was_not_declared_on_the_driver_is_refused_in_the_host() -> None:
    with pytest.raises(ConfigurationError, match=r"state 'late' was not declared .*declared: none"):
        serving_handle({}).getValueState("late", "x int")


def test_a_state_that_was_declared_of_another_kind_is_refused_in_the_host() -> None:
    backend = HeapKeyedStateBackend(KeyGroupRange(0, 0), KeyColumns((), (), ()), PLAIN_FORMS)
    state = backend.state(describe("value", "s", ("x int",)))
    with pytest.raises(ConfigurationError, match="map state 's' was not declared"):
        serving_handle({"s": state}).getMapState("s", "k int", "v int")
