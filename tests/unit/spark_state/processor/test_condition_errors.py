"""Errors have Spark's error conditions, so an existing job catches the errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from pyspark.errors import (
    IllegalArgumentException,
    PySparkException,
    PySparkRuntimeError,
    SessionNotSameException,
)

from spark_state.errors import ConfigurationError
from spark_state.processor import condition_errors

OF_SPARK: list[tuple[Callable[[], PySparkException], type[PySparkException], str, str, str]] = [
    (
        lambda: condition_errors.unknown_output_mode("foo"),
        IllegalArgumentException,
        "STREAMING_OUTPUT_MODE.INVALID",
        "42KDE",
        "Invalid streaming output mode: foo. Accepted output modes are 'Append', 'Complete', "
        "'Update'.",
    ),
    (
        lambda: condition_errors.unknown_time_mode("foo"),
        IllegalArgumentException,
        "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE",
        "42802",
        "Unknown time mode foo. Accepted timeMode modes are 'none', 'processingTime', 'eventTime'",
    ),
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
    (
        lambda: condition_errors.state_not_nullable("s", "struct<n:int>"),
        PySparkRuntimeError,
        "TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE",
        "XXKST",
        "If Avro encoding is enabled, all the fields in the schema for column family s must be "
        "nullable when using the TransformWithState operator. Please make the schema nullable. "
        "Current schema: struct<n:int>",
    ),
    (
        lambda: condition_errors.timer_without_time("register_timer"),
        PySparkRuntimeError,
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE",
        "42802",
        "Failed to perform stateful processor operation=register_timer with invalid "
        "timeMode=NoTime",
    ),
    (
        lambda: condition_errors.timer_in_init("delete_timer"),
        PySparkRuntimeError,
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
        "42802",
        "Failed to perform stateful processor operation=delete_timer with invalid handle "
        "state=CREATED.",
    ),
    (
        lambda: condition_errors.ttl_in_time_mode("s", "EventTime"),
        PySparkRuntimeError,
        "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL",
        "42802",
        "Cannot use TTL for state=s in timeMode=EventTime, use TimeMode.ProcessingTime() instead.",
    ),
    (
        lambda: condition_errors.ttl_not_positive("s", -5),
        PySparkRuntimeError,
        "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
        "42802",
        "TTL duration must be greater than zero for State store operation=update on state=s.",
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
