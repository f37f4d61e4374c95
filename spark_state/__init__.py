"""cowstate: keyed state for PySpark Structured Streaming, kept in Python beside its processor.

`enable(spark)` runs the PySpark StatefulProcessors of existing jobs on it, as they are.
`transform_with_state(df.groupBy("key"), Processor(), schema, output_mode, time_mode)` does it
explicitly, `transform_with_state_in_pandas` for processors of the pandas API, and
`transform_with_state_in_arrow` for an `ArrowStatefulProcessor`, which gets many keys with a call.
`configure(SparkSession.builder)` makes the stateful operators of existing jobs keep their state in
cowstate's provider, whose jar is at `jar_path()`.
`progress(query)` shows what the operators of a query did, and `serve_metrics(spark)` serves that to
Prometheus.
`savepoint` writes all that operators have to a place of its own, and `restore` makes a store of it.
`live_view` follows a state from a Python process.
`OperatorStateBackend` is state without a key, for sources: positions, watermarks, options.

Only the errors are imported with the package, the rest when it is first used: state hosts and
readers of state import it without Spark's session and plans.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_state.errors import (
    BatchIdentityError,
    ConfigurationError,
    CorruptStreamError,
    CowstateError,
    FencedError,
    KeyGroupError,
    MemoryLimitError,
    OutputRowError,
    StateHostError,
    StateMigrationError,
    StateValueError,
    UnsupportedOperationError,
)

if TYPE_CHECKING:
    from spark_state.live_state import LiveView, live_view
    from spark_state.operator_state.operator_state_backend import OperatorStateBackend
    from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
    from spark_state.savepoints.savepoint import Savepoint, restore, savepoint
    from spark_state.spark.operator.enable import disable, enable
    from spark_state.spark.operator.operator_plan import (
        transform_with_state,
        transform_with_state_in_arrow,
        transform_with_state_in_pandas,
    )
    from spark_state.spark.progress.metrics_server import MetricsServer, serve_metrics
    from spark_state.spark.progress.operators_of_queries import progress
    from spark_state.spark.provider.session_configuration import configure, jar_path

__all__ = [
    "ArrowStatefulProcessor",
    "BatchIdentityError",
    "ConfigurationError",
    "CorruptStreamError",
    "CowstateError",
    "FencedError",
    "KeyGroupError",
    "LiveView",
    "MemoryLimitError",
    "MetricsServer",
    "OperatorStateBackend",
    "OutputRowError",
    "Savepoint",
    "StateHostError",
    "StateMigrationError",
    "StateValueError",
    "UnsupportedOperationError",
    "configure",
    "disable",
    "enable",
    "jar_path",
    "live_view",
    "progress",
    "restore",
    "savepoint",
    "serve_metrics",
    "transform_with_state",
    "transform_with_state_in_arrow",
    "transform_with_state_in_pandas",
]

_LATER = {
    "ArrowStatefulProcessor": "spark_state.processor.arrow.arrow_processor",
    "LiveView": "spark_state.live_state",
    "MetricsServer": "spark_state.spark.progress.metrics_server",
    "OperatorStateBackend": "spark_state.operator_state.operator_state_backend",
    "Savepoint": "spark_state.savepoints.savepoint",
    "configure": "spark_state.spark.provider.session_configuration",
    "disable": "spark_state.spark.operator.enable",
    "enable": "spark_state.spark.operator.enable",
    "jar_path": "spark_state.spark.provider.session_configuration",
    "live_view": "spark_state.live_state",
    "progress": "spark_state.spark.progress.operators_of_queries",
    "restore": "spark_state.savepoints.savepoint",
    "savepoint": "spark_state.savepoints.savepoint",
    "serve_metrics": "spark_state.spark.progress.metrics_server",
    "transform_with_state": "spark_state.spark.operator.operator_plan",
    "transform_with_state_in_arrow": "spark_state.spark.operator.operator_plan",
    "transform_with_state_in_pandas": "spark_state.spark.operator.operator_plan",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, also those that are not imported yet: what tab completion offers."""
    return sorted({*globals(), *__all__})
