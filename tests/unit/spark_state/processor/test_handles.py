"""A processor's `init` may declare supported states, and unsupported declarations are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.key_columns import KeyColumns
from spark_state.operator_state.handed_out_states import OperatorStates
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.condition_errors import ProcessorHandleError
from spark_state.processor.handles import ProcessorHandle, record_states
from spark_state.processor.rows import STATE_FORMS
from spark_state.processor.serving_handles import serving_handle
from spark_state.state_descriptor import StateDescriptor, StateKind
from tests.support.operators.subtasks import SCHEMAS

Init = Callable[[Any], Any]


class GivenInit:
    """A processor that runs a given `init` and notes its close."""

    def __init__(self, init: Init) -> None:
        self._init = init
        self.closed = False

    def init(self, handle: Any) -> None:
        self._init(handle)

    def close(self) -> None:
        self.closed = True


def serving(
    states: dict[str, tuple[StateKind, Any]], drop: Callable[[str], None] = lambda name: None
) -> Any:
    none = OperatorStates(OperatorStateBackend(), (), STATE_FORMS.make_row)
    struct = pa.struct([("x", pa.int64())])
    descriptors = [StateDescriptor(name, kind, struct, "") for name, (kind, _) in states.items()]
    return serving_handle(
        descriptors, lambda state: states[state.name][1], none, drop, ProcessorHandle
    )


def recorded(init: Init) -> tuple[StateDescriptor, ...]:
    return record_states(GivenInit(init), SCHEMAS).keyed


def fields_of(state: StateDescriptor) -> list[str]:
    return re.findall(r'"name":"(\w)"', state.schema_json)


def test_init_declares_its_states_in_order_and_is_closed() -> None:
    def init(handle: Any) -> None:
        handle.getValueState("b", "x bigint")
        handle.getValueState(stateName="a", schema="y bigint", ttlDurationMs=None)
        handle.getListState(stateName="l", schema="z bigint", ttlDurationMs=None)
        handle.getMapState(
            "m", userKeySchema="k bigint", valueSchema="v bigint", ttlDurationMs=None
        )

    processor = GivenInit(init)
    states = record_states(processor, SCHEMAS).keyed
    assert [(state.kind, state.name, fields_of(state)) for state in states] == [
        ("value", "b", ["x"]),
        ("value", "a", ["y"]),
        ("list", "l", ["z"]),
        ("map", "m", ["k", "v"]),
    ]
    assert processor.closed


IN_INIT = "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE"
REFUSED: list[tuple[Init, str]] = [
    (lambda handle: handle.registerTimer(5), rf"^.{IN_INIT}.*operation=register_timer"),
    (lambda handle: handle.deleteTimer(5), rf"^.{IN_INIT}.*operation=delete_timer"),
    (lambda handle: handle.listTimers(), rf"^.{IN_INIT}.*operation=list_timers"),
    (lambda handle: handle.getValueState("v", "x bigint").get(), r"init used state 'v' \(get\)"),
    (
        lambda handle: handle.getListState("l", "x bigint").appendValue((1,)),
        r"init used state 'l' \(appendValue\)",
    ),
]


@pytest.mark.parametrize(("init", "message"), REFUSED)
def test_what_cannot_be_done_in_init_is_refused_on_the_driver(init: Init, message: str) -> None:
    with pytest.raises((UnsupportedOperationError, ProcessorHandleError), match=message):
        recorded(init)


def test_a_time_to_live_is_recorded_in_processing_time() -> None:
    def init(handle: Any) -> None:
        handle.getValueState("v", "x bigint", 1000)
        handle.getListState("l", "x bigint", ttlDurationMs=2000)
        handle.getMapState("m", "k bigint", "v bigint", 3000)
        handle.getValueState("w", "x bigint")

    states = record_states(GivenInit(init), SCHEMAS, "ProcessingTime").keyed
    assert [state.ttl_ms for state in states] == [1000, 2000, 3000, None]


def test_a_state_that_is_deleted_and_then_declared_is_refused() -> None:
    def init(handle: Any) -> None:
        handle.deleteIfExists("v")
        handle.getValueState("v", "x bigint")

    with pytest.raises(ConfigurationError, match=r"'v'.*leave one of the two out"):
        recorded(init)


def test_a_state_that_is_declared_and_deleted_is_recorded_apart_and_its_name_is_taken() -> None:
    def init(handle: Any) -> None:
        handle.deleteIfExists("of an earlier run")
        handle.getListState("l", "x bigint", ttlDurationMs=1000)
        handle.getValueState("v", "x bigint")
        for name in ("l", "l", "of an earlier run"):
            handle.deleteIfExists(name)

    def init_again(handle: Any) -> None:
        init(handle)
        handle.getValueState("l", "x bigint")

    states = record_states(GivenInit(init), SCHEMAS, "ProcessingTime")
    assert [state.name for state in states.keyed] == ["v"]
    (deleted,) = states.deleted
    assert (deleted.name, deleted.kind, fields_of(deleted)) == ("l", "list", ["x"])
    assert deleted.ttl_ms == 1000
    with pytest.raises(ConfigurationError, match=r"State .l. is declared twice"):
        record_states(GivenInit(init_again), SCHEMAS, "ProcessingTime")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda handle: handle.getValueState("v", "x int").exists(), "checking value state exists"),
        (lambda handle: handle.getValueState("v", "x int").update((1,)), "updating value state"),
        (lambda handle: handle.getListState("v", "x int").exists(), "checking value state exists"),
        (lambda handle: handle.getMapState("v", "k int", "x int").clear(), "clearing map state"),
        (lambda handle: handle.getListState("v", "x int").put([]), r"using value state \(put\)"),
    ],
)
def test_use_of_a_deleted_state_is_the_error_of_spark(use: Init, message: str) -> None:
    deleted: list[str] = []
    handle = serving({}, deleted.append)
    handle.deleteIfExists("v")
    assert deleted == ["v"]
    with pytest.raises(PySparkRuntimeError, match=f"^Error {message}: state 'v' was deleted"):
        use(handle)


@pytest.mark.parametrize("name", ["", None, 5, "$timers"])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a state's name is a non-empty str"):
        recorded(lambda handle: handle.getValueState(name, "x bigint"))


def test_a_state_that_was_not_declared_on_the_driver_is_refused_in_the_host() -> None:
    with pytest.raises(ConfigurationError, match=r"state 'late' was not declared .*declared: none"):
        serving({}).getValueState("late", "x bigint").get()


def test_a_state_that_was_declared_of_another_kind_is_refused_in_the_host() -> None:
    backend = HeapKeyedStateBackend(KeyGroupRange(0, 0), KeyColumns((), (), ()), PLAIN_FORMS)
    state = backend.state(SCHEMAS.keyed("value", "s", ("x bigint",)))
    with pytest.raises(ConfigurationError, match="state 's' was no map state"):
        serving({"s": ("value", state)}).getMapState("s", "k bigint", "v bigint")


@pytest.mark.parametrize("name", ["", None, 5, ["x"], "$procTimers"])
def test_a_name_that_no_state_can_have_is_not_deleted(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a state's name is a non-empty str"):
        recorded(lambda handle: handle.deleteIfExists(name))
