"""Errors with an error condition of Spark. Jobs recognize an error by the condition, or by the
exception class that PySpark has for the condition.

Each error is also an error of `spark_state.errors`, so `except CowstateError` catches the error.
The message begins with Spark's text. Most messages then say how to avoid the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    PySparkRuntimeError,
    PySparkTypeError,
    PySparkValueError,
    SessionNotSameException,
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
    """Error with Spark's `condition`, `sql_state` and `parameters`. `message`: the text without the
    condition."""

    condition: str
    sql_state: str
    message: str
    parameters: dict[str, str]

    def __str__(self) -> str:
        return self.getMessage()

    def getMessage(self) -> str:
        """Return the message, see PySparkException."""
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
    """An output mode or time mode is unknown to Spark."""


class SchemaTextError(SparkConditionError, ParseException):
    """A schema's text cannot be parsed."""


class ProcessorHandleError(SparkConditionError, PySparkRuntimeError):
    """A processor asks the handle for something that the time mode, another state or the phase of
    the run rules out."""


class TypeWithoutArrowError(SparkConditionError, PySparkTypeError):
    """A column has a type that PySpark cannot convert to Arrow, so no Python process can get the
    column."""


class OutputColumnError(OutputRowError, PySparkValueError):
    """A column of an output DataFrame cannot be converted to the column's type in the schema. The
    conversion raised another error than a TypeError."""


class OutputColumnTypeError(OutputRowError, PySparkTypeError):
    """A column of an output DataFrame cannot be converted to the column's type in the schema. The
    conversion raised a TypeError."""


def output_column_error(
    field: pa.Field[Any], dtype: Any, details: str, cause: Exception
) -> OutputColumnError | OutputColumnTypeError:
    """Return the error for a DataFrame column that cannot be converted. As in PySpark, the `cause`
    decides the class and the first sentence of the message: one class for a TypeError, another for
    all other errors. The message ends with `details`."""
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
    """Return the error for a column with a type that PySpark cannot convert to Arrow."""
    return TypeWithoutArrowError(
        "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION",
        "0A000",
        f"{data_type} is not supported in conversion to Arrow. Column {column!r} has it, and "
        "Spark's own operator does not keep it either. An interval of years or months becomes a "
        "number by cast(col AS int); an interval of days to seconds can be kept",
        {"data_type": data_type},
    )


class OtherSessionError(SparkConditionError, SessionNotSameException):
    """The inputs of one operator are DataFrames of two sessions."""


def session_not_same(what: str) -> OtherSessionError:
    """Return the error for DataFrames of two sessions. `what`: names the DataFrames in the
    message."""
    return OtherSessionError(
        "SESSION_NOT_SAME",
        "56K00",
        f"Both Datasets must belong to the same SparkSession. These do not: {what}",
        {},
    )


class EventTimeColumnError(SparkConditionError, AnalysisException):
    """An input has no column of event times, or more than one, or the column is no timestamp."""


class EmittedTooLateError(SparkConditionError, PySparkRuntimeError):
    """A processor emits a row that is late for the operators downstream."""


def emitted_too_late(event_ms: int, watermark_ms: int) -> EmittedTooLateError:
    """Return the error for a row whose event time the watermark has passed."""
    return EmittedTooLateError(
        "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED",
        "42815",
        f"Previous node emitted a row with eventTime={event_ms} which is older than "
        f"current_watermark_value={watermark_ms}. Operators behind would drop it: emit rows that "
        "are later than the watermark",
        {"emittedRowEventTime": str(event_ms), "currentWatermark": str(watermark_ms)},
    )


class DeletedStateError(ConfigurationError, PySparkRuntimeError):
    """A processor uses a state that `init` has deleted. Spark has no condition for the error."""


def unknown_output_mode(output_mode: object) -> UnknownModeError:
    """Return the error for an output mode that is unknown to Spark."""
    return UnknownModeError(
        "STREAMING_OUTPUT_MODE.INVALID",
        "42KDE",
        f"Invalid streaming output mode: {output_mode}. Accepted output modes are 'Append', "
        "'Complete', 'Update'.",
        {"outputMode": str(output_mode)},
    )


def unknown_time_mode(time_mode: object) -> UnknownModeError:
    """Return the error for a time mode that is unknown to Spark."""
    return UnknownModeError(
        "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE",
        _INVALID_PARAMETER,
        f"Unknown time mode {time_mode}. Accepted timeMode modes are 'none', 'processingTime', "
        "'eventTime'",
        {"timeMode": str(time_mode)},
    )


def unparsable_schema(what: str, text: str, error: ParseException) -> SchemaTextError:
    """Return the error for a text that Spark could not parse as a schema. `what`: owner of the
    schema, for the message, such as "state 'count'"."""
    return SchemaTextError(
        error.getCondition() or "PARSE_SYNTAX_ERROR",
        error.getSqlState() or "42601",
        f"{what}: {text!r} is not a schema: {error}",
        error.getMessageParameters() or {},
    )


def state_defined_twice(state_name: str) -> ProcessorHandleError:
    """Return the error for two states with the same name."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
        _INVALID_PARAMETER,
        f"State variable with name {state_name} has already been defined in the "
        f"StatefulProcessor. State {state_name!r} is declared twice; give each its own name",
        {"stateVarName": state_name},
    )


def deleted_state(kind: str, state_name: str, operation: str) -> DeletedStateError:
    """Return the error for the use of a deleted state. `operation`: name of the state's method."""
    # Spark's messages call a list state a value state, too.
    spark_kind = "map" if kind == "map" else "value"
    doing = _DOING.get(operation, f"using {{}} state ({operation})").format(spark_kind)
    return DeletedStateError(
        f"Error {doing}: state {state_name!r} was deleted in init (deleteIfExists). Leave out the "
        "call of deleteIfExists, or do not use the state"
    )


def state_not_nullable(state_name: str, schema: str) -> ProcessorHandleError:
    """Return the error for a state with a field that must not be null, while Avro encoding is
    enabled."""
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
    """Return the error for the use of timers in time mode "None". `operation`: Spark's name of the
    operation, such as "register_timer"."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE",
        _INVALID_PARAMETER,
        f"Failed to perform stateful processor operation={operation} with invalid "
        'timeMode=NoTime. Timers need time mode "ProcessingTime" or "EventTime"',
        {"operationType": operation, "timeMode": "NoTime"},
    )


def timer_in_init(operation: str) -> ProcessorHandleError:
    """Return the error for the use of timers in `init`. `operation`: Spark's name of the
    operation."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
        _INVALID_PARAMETER,
        f"Failed to perform stateful processor operation={operation} with invalid handle "
        "state=CREATED. There is no current key in init: use timers in handleInputRows, "
        "handleExpiredTimer or handleInitialState",
        {"operationType": operation, "handleState": "CREATED"},
    )


def operation_after_init(operation: str) -> ProcessorHandleError:
    """Return the error for a state that is declared or deleted after `init`. `operation`: Spark's
    name of the operation, such as "delete_if_exists"."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
        _INVALID_PARAMETER,
        f"Failed to perform stateful processor operation={operation} with invalid handle "
        "state=INITIALIZED. States are declared and deleted in init only, for all keys together",
        {"operationType": operation, "handleState": "INITIALIZED"},
    )


def ttl_in_time_mode(state_name: str, time_mode: str) -> ProcessorHandleError:
    """Return the error for a time to live in time mode "None" or "EventTime"."""
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
    """Return the error for a time to live that is not a positive int."""
    return ProcessorHandleError(
        "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
        _INVALID_PARAMETER,
        "TTL duration must be greater than zero for State store operation=update on "
        f"state={state_name}. ttlDurationMs is {ttl_ms!r}; give whole milliseconds, or leave it "
        "out",
        {"operationType": "update", "stateName": state_name},
    )
