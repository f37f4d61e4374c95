"""cowstate: keyed state for PySpark Structured Streaming, kept in Python beside its processor.

`transform_with_state(df.groupBy("key"), Processor(), schema, output_mode, time_mode)` runs an
unmodified PySpark StatefulProcessor on it. It is imported when it is first used: state hosts and
readers of state import this package without Spark's session and plans.
"""

from typing import TYPE_CHECKING, Any

from spark_state.errors import (
    BatchIdentityError,
    ConfigurationError,
    CowstateError,
    FencedError,
    KeyGroupError,
    OutputRowError,
    StateHostError,
    StateMigrationError,
    StateValueError,
    UnsupportedOperationError,
)

if TYPE_CHECKING:
    from spark_state.spark.operator_plan import transform_with_state

__all__ = [
    "BatchIdentityError",
    "ConfigurationError",
    "CowstateError",
    "FencedError",
    "KeyGroupError",
    "OutputRowError",
    "StateHostError",
    "StateMigrationError",
    "StateValueError",
    "UnsupportedOperationError",
    "transform_with_state",
]


def __getattr__(name: str) -> Any:
    if name == "transform_with_state":
        from spark_state.spark.operator_plan import transform_with_state

        return transform_with_state
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
