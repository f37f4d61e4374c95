"""A server's task answers a call, and the client accepts only valid answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkpoint_store.errors import CowstateError, PartialEpochError, StoreAccessError
from spark_state.errors import ConfigurationError
from spark_state.processor.condition_errors import unknown_time_mode
from spark_state.spark.session.connect_sessions import answer_of, value_of


def raises(error: Exception) -> Any:
    raise error


def told(name: str, *values: object) -> str:
    return json.dumps({"error": name, "values": values, "message": "what happened"})


def test_a_value_comes_back() -> None:
    assert value_of(answer_of(divmod, (7, 2))) == [3, 1]


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("set the store"),
        StoreAccessError("file:///none", "no right"),
        PartialEpochError("file:///store", 3, (0,), (1, 2)),
        unknown_time_mode("noon"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_with_its_class_and_its_message(error: CowstateError) -> None:
    with pytest.raises(type(error)) as raised:
        value_of(answer_of(raises, (error,)))
    assert str(raised.value) == str(error)


@pytest.mark.parametrize(
    "name",
    [
        "dataclass",
        "get_close_matches",
        "HOW_TO_GO_BACK",
        "datetime",
        "PySparkException",
        "unknown_time_mode",
        "ErrorOfAnotherRelease",
    ],
)
def test_a_name_that_is_no_error_of_cowstate_is_not_called(name: str) -> None:
    with pytest.raises(CowstateError, match=f"^{name}: what happened$") as raised:
        value_of(told(name, "a", "b"))
    assert type(raised.value) is CowstateError


def test_other_errors_of_a_function_stay_in_the_task() -> None:
    with pytest.raises(ZeroDivisionError):
        answer_of(divmod, (7, 0))
