"""Errors that have a condition of Spark's: jobs match on it, and on the class that goes with it.

Each is an error of `spark_state.errors`, too, so `except CowstateError` catches it. The message
begins as Spark's does, and goes on with the way out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import (
    IllegalArgumentException,
    ParseException,
    PySparkException,
    PySparkRuntimeError,
    PySparkTypeError,
    PySparkValueError,
    SessionNotSameException,
    SparkRuntimeException,
)

from spark_state.errors import ConfigurationError, OutputRowError

_INVALID_PARAMETER = "42802"
_DOING = {
    "exists": "checking {} state exists",
    "get": "getting {} state",
    "update": "updating {} state",
    "clear": "clearing {} state",
}


@dataclass(eq=False)
class SparkConditionError(ConfigurationError, PySparkException):
    """`condition`, `sql_state` and `parameters` as Spark has them; `message` goes on with the way
    out."""

    condition: str
    sql_state: str
    message: str
    parameters: dict[str, str]

    def __str__(self) -> str:
        return self.getMessage()

    def getMessage(self) -> str:
        """See PySparkException, as for the other methods."""
        return f"[{self.condition}] {self.message}"

    def getCondition(self) -> str:
        return self.condition

    def getSqlState(self) -> str:
        return self.sql_state

    def getMessageParameters(self) -> dict[str, str]:
        return self.parameters

    def getQueryContext(self) -> list[Any]:
        return []


class UnknownModeError(SparkConditionError, IllegalArgumentException):
    """An output mode or time mode that Spark does not have."""


class SchemaTextError(SparkConditionError, ParseException):
    """A text that is to be a schema cannot be parsed."""


class ProcessorHandleError(SparkConditionError, PySparkRuntimeError):
    """A processor asks its handle for what its time mode, or another of its states, rules out."""


class TypeWithoutArrowError(SparkConditionError, PySparkTypeError):
    """A column has a type that PySpark does not bring to Arrow, and so to no Python process."""


class OutputColumnError(OutputRowError, PySparkValueError):
    """A column of an output DataFrame has values that its type in the schema cannot take."""


class OutputColumnTypeError(OutputRowError, PySparkTypeError):
    """A column of an output DataFrame has values of another kind than its type in the schema."""


def output_column_error(
    field: pa.Field[Any], dtype: Any, details: str, cause: Exception
) -> OutputColumnError | OutputColumnTypeError:
    """The error of a column of a DataFrame that cannot be converted, in the class and the words
    that PySpark has for such a `cause`, and then `details`."""
    if isinstance(cause, TypeError):
        return OutputColumnTypeError(
            f"Cannot convert the output value of the column '{field.name}' with type '{dtype}' to "
            f"the specified return type of the column: '{field.type}'. Please check if the data "
            f"types match and try again. {details}"
        )
    return OutputColumnError(
        f"Failed to convert the value of the column '{field.name}' with type '{dtype}' to Arrow "
        f"type '{field.type}'. {details}"
    )


def type_without_arrow(column: str, data_type: str) -> TypeWithoutArrowError:
    """The error of a column of such a type."""
    return TypeWithoutArrowError(
        "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION",
        "0A000",
        f"{data_type} is not supported in conversion to Arrow. Column {column!r} has it, and "
        "Spark's own operator does not keep it either. An interval of years or months becomes a "
        "number by cast(col AS int); an interval of days to seconds can be kept",
        {"data_type": data_type},
    )


class OtherSessionError(SparkConditionError, SessionNotSameException):
    """DataFrames of two sessions are to be inputs of one operator."""


def session_not_same(what: str) -> OtherSessionError:
    """The error of DataFrames that belong to two sessions. `what`: these DataFrames."""
    return OtherSessionError(
        "SESSION_NOT_SAME",
        "56K00",
        f"Both Datasets must belong to the same SparkSession. These do not: {what}",
        {},
    )


class EmittedTooLateError(SparkConditionError, PySparkRuntimeError):
    """A processor emits a row that is late for the operators behind."""


def emitted_too_late(event_ms: int, watermark_ms: int) -> EmittedTooLateError:
    """The error of a row whose event time the watermark has passed."""
    return EmittedTooLateError(
        "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED",
        "42815",
        f"Previous node emitted a row with eventTime={event_ms} which is older than "
        f"current_watermark_value={watermark_ms}. Operators behind would drop it: emit rows that "
        "are later than the watermark",
        {"emittedRowEventTime": str(event_ms), "currentWatermark": str(watermark_ms)},
    )


class StateReadOptionError(SparkConditionError, SparkRuntimeException):
    """An option of a read of `format("statestore")` that Spark's own reader refuses, too."""


class DeletedStateError(ConfigurationError, PySparkRuntimeError):
    """A processor uses a state that its `init` has deleted. Spark has no condition for it."""


def unknown_output_mode(output_mode: object) -> UnknownModeError:
    """The error of an output mode that Spark does not have."""
    return UnknownModeError(
        "STREAMING_OUTPUT_MODE.INVALID",
        "42KDE",
        f"Invalid streaming output mode: {output_mode}. Accepted output modes are 'Append', "
        "'Complete', 'Update'.",
        {"outputMode": str(output_mode)},
    )


def unknown_time_mode(time_mode: object) -> UnknownModeError:
    """The error of a time mode that Spark does not have."""
    return UnknownModeError(
        "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE",
        _INVALID_PARAMETER,
        f"Unknown time mode {time_mode}. Accepted timeMode modes are 'none', 'processingTime', "
        "'eventTime'",
        {"timeMode": str(time_mode)},
    )


def unparsable_schema(what: str, text: str, error: ParseException) -> SchemaTextError:
    """The error of a text that Spark could not parse as a schema. `what`: whose."""
    return SchemaTextError(
        error.getCondition() or "PARSE_SYNTAX_ERROR",
        error.getSqlState() or "42601",
        f"{what}: {text!r} is not a schema: {error}",
        error.getMessageParameters() or {},
    )


def state_defined_twice(state_name: str) -> ProcessorHandleError:
    """The error of two states of one name."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
        _INVALID_PARAMETER,
        f"State variable with name {state_name} has already been defined in the "
        f"StatefulProcessor. State {state_name!r} is declared twice; give each its own name",
        {"stateVarName": state_name},
    )


def deleted_state(kind: str, state_name: str, operation: str) -> DeletedStateError:
    """The error of using a deleted state. `operation`: the name of the state's method."""
    # In Spark's messages a list is a value, too.
    spark_kind = "map" if kind == "map" else "value"
    doing = _DOING.get(operation, f"using {{}} state ({operation})").format(spark_kind)
    return DeletedStateError(
        f"Error {doing}: state {state_name!r} was deleted in init (deleteIfExists). Leave out the "
        "call of deleteIfExists, or do not use the state"
    )


def state_not_nullable(state_name: str, schema: str) -> ProcessorHandleError:
    """The error of a state with a field that must not be null, where states are to be Avro."""
    return ProcessorHandleError(
        "TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE",
        "XXKST",
        f"If Avro encoding is enabled, all the fields in the schema for column family {state_name} "
        "must be nullable when using the TransformWithState operator. Please make the schema "
        f"nullable. Current schema: {schema}. cowstate does not encode states in Avro; set "
        "spark.sql.streaming.stateStore.encodingFormat to unsaferow to keep such fields",
        {"columnFamilyName": state_name, "schema": schema},
    )


def timer_without_time(operation: str) -> ProcessorHandleError:
    """The error of a timer in time mode "None". `operation`: as Spark calls it, such as
    "register_timer"."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE",
        _INVALID_PARAMETER,
        f"Failed to perform stateful processor operation={operation} with invalid "
        'timeMode=NoTime. Timers need time mode "ProcessingTime" or "EventTime"',
        {"operationType": operation, "timeMode": "NoTime"},
    )


def timer_in_init(operation: str) -> ProcessorHandleError:
    """The error of a timer in `init`."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
        _INVALID_PARAMETER,
        f"Failed to perform stateful processor operation={operation} with invalid handle "
        "state=CREATED. There is no current key in init: use timers in handleInputRows, "
        "handleExpiredTimer or handleInitialState",
        {"operationType": operation, "handleState": "CREATED"},
    )


def operation_after_init(operation: str) -> ProcessorHandleError:
    """The error of a state that is declared or deleted after `init`. `operation`: as Spark calls
    it, such as "delete_if_exists"."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
        _INVALID_PARAMETER,
        f"Failed to perform stateful processor operation={operation} with invalid handle "
        "state=INITIALIZED. States are declared and deleted in init only, for all keys together",
        {"operationType": operation, "handleState": "INITIALIZED"},
    )


def ttl_in_time_mode(state_name: str, time_mode: str) -> ProcessorHandleError:
    """The error of a time to live in time mode "None" or "EventTime"."""
    spark_mode = "NoTime" if time_mode == "None" else time_mode
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL",
        _INVALID_PARAMETER,
        f"Cannot use TTL for state={state_name} in timeMode={spark_mode}, use "
        "TimeMode.ProcessingTime() instead. A time to live is measured in processing time: pass "
        'timeMode="ProcessingTime"',
        {"stateName": state_name, "timeMode": spark_mode},
    )


def ttl_not_positive(state_name: str, ttl_ms: object) -> ProcessorHandleError:
    """The error of a time to live that is not a positive int."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
        _INVALID_PARAMETER,
        "TTL duration must be greater than zero for State store operation=update on "
        f"state={state_name}. ttlDurationMs is {ttl_ms!r}; give whole milliseconds, or leave it "
        "out",
        {"operationType": "update", "stateName": state_name},
    )
