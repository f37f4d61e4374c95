"""A processor gets operator state with PySpark's methods, and may change the Rows freely."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Row

from spark_state.errors import ConfigurationError, StateValueError, UnsupportedOperationError
from spark_state.operator_state.handed_out_states import BroadcastMapState, OperatorStates
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.rows import STATE_FORMS
from tests.support.operators.subtasks import SCHEMAS

ITEMS = SCHEMAS.operator("split", "items", ("name string, n bigint",))
RULES = SCHEMAS.operator("broadcast", "rules", ("country string", "most bigint"))


@pytest.fixture
def states() -> OperatorStates:
    backend = OperatorStateBackend(STATE_FORMS)
    return OperatorStates(backend, (ITEMS, RULES), STATE_FORMS.make_row)


@pytest.fixture
def rules(states: OperatorStates) -> BroadcastMapState:
    states.broadcasts_may_change = True
    states.broadcast["rules"].updateValue(("de",), (100,))
    states.broadcast["rules"].updateValue(("fr",), (50,))
    states.broadcasts_may_change = False
    return states.broadcast["rules"]


def test_a_list_has_the_methods_of_a_list_state(states: OperatorStates) -> None:
    items = states.look_up("split", "items")
    assert not items.exists()
    items.appendValue(("a", 1))
    items.appendList([("b", 2), ("c", 3)])
    assert [(item.name, item.n) for item in items.get()] == [("a", 1), ("b", 2), ("c", 3)]
    assert items.exists()
    items.put([("d", 4)])
    assert list(items.get()) == [Row(name="d", n=4)]
    items.clear()
    assert list(items.get()) == []
    with pytest.raises(StateValueError, match="operator state 'items'"):
        items.appendValue((1, "a"))


def test_a_broadcast_state_has_the_methods_of_a_map_state(
    states: OperatorStates, rules: BroadcastMapState
) -> None:
    assert rules.exists()
    assert rules.containsKey(("de",))
    assert rules.getValue(("de",)).most == 100
    assert rules.getValue(("it",)) is None
    assert list(rules.iterator()) == [(("de",), (100,)), (("fr",), (50,))]
    assert list(rules.keys()) == [("de",), ("fr",)]
    assert next(rules.keys()).country == "de"
    assert [value.most for value in rules.values()] == [100, 50]
    states.broadcasts_may_change = True
    rules.removeKey(("de",))
    assert not rules.containsKey(("de",))
    rules.clear()
    assert not rules.exists()


WRITES: dict[str, Callable[[BroadcastMapState], None]] = {
    "updateValue": lambda rules: rules.updateValue(("de",), (1,)),
    "removeKey": lambda rules: rules.removeKey(("de",)),
    "clear": lambda rules: rules.clear(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_broadcast_state_changes_on_the_broadcast_side_only(
    rules: BroadcastMapState, write: Callable[[BroadcastMapState], None]
) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"'rules' can be read.*handleBroadcastR"):
        write(rules)
    assert rules.getValue(("de",)).most == 100


def test_a_state_that_is_not_declared_is_refused(states: OperatorStates) -> None:
    for mode, name in (("union", "items"), ("split", "others"), ("broadcast", "items")):
        with pytest.raises(ConfigurationError, match=rf"{mode} operator state '{name}' was not"):
            states.look_up(mode, name)  # type: ignore[arg-type]
