"""Errors have Spark's error conditions, so an existing job catches the errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from pyspark.errors import (
    PySparkException,
    PySparkRuntimeError,
    SessionNotSameException,
)

from spark_state.errors import ConfigurationError
from spark_state.processor import condition_errors

OF_SPARK: list[tuple[Callable[[], PySparkException], type[PySparkException], str, str, str]] = [
    (
        lambda: condition_errors.session_not_same("a and b"),
        SessionNotSameException,
        "SESSION_NOT_SAME",
        "56K00",
        "Both Datasets must belong to the same SparkSession.",
    ),
    (
        lambda: condition_errors.state_defined_twice("s"),
        PySparkRuntimeError,
        "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
        "42802",
        "State variable with name s has already been defined in the StatefulProcessor.",
    ),
]


@pytest.mark.parametrize(("make", "spark_class", "condition", "sql_state", "message"), OF_SPARK)
def test_a_job_that_catches_the_error_of_spark_catches_ours_also_from_another_process(
    make: Callable[[], PySparkException],
    spark_class: type[PySparkException],
    condition: str,
    sql_state: str,
    message: str,
) -> None:
    error = make()
    for caught in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(caught, spark_class)
        assert isinstance(caught, ConfigurationError)
        assert (caught.getCondition(), caught.getSqlState()) == (condition, sql_state)
        assert str(caught).startswith(f"[{condition}] {message}")
        assert all(value in message for value in (caught.getMessageParameters() or {}).values())
