"""cowstate: keyed state for PySpark Structured Streaming, kept in Python beside the processor.

- `enable(spark)` runs the PySpark StatefulProcessors of existing jobs on cowstate, unchanged.
- `transform_with_state(df.groupBy("key"), Processor(), schema, output_mode, time_mode)` is the
  explicit form. `transform_with_state_in_pandas` is for processors of the pandas API.
  `transform_with_state_in_arrow` is for an `ArrowStatefulProcessor`, which gets many keys in one
  call.
- `configure(SparkSession.builder)` makes the stateful operators of existing jobs keep state in
  cowstate's provider. `jar_path()` is the path of the provider's jar.
- `progress(query)` shows the work of a query's operators. `serve_metrics(spark)` serves the
  progress to Prometheus.
- `savepoint` copies the whole state of operators to a place of its own. `restore` makes a store
  from a savepoint.
- `live_view` follows a state from a Python process.
- `OperatorStateBackend` is state without a key, for sources: positions, watermarks, options.

The package imports the errors at once, and everything else on first use. So state hosts and readers
of state can import the package without Spark's session and plans.
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
    """Return all names, also names not yet imported, for tab completion."""
    return sorted({*globals(), *__all__})
