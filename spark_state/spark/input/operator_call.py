"""A call of transformWithState: the arguments of Spark's methods under this project's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import unwrap
from typing import Any, Literal

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from spark_state.errors import ConfigurationError
from spark_state.processor.arrow.arrow_processor import ArrowStatefulProcessor
from spark_state.spark.session.connect_sessions import is_grouped

Api = Literal["rows", "pandas", "arrow"]
"""The API of a processor, see processor_api."""

# Spark has no operator for a processor in Arrow.
_SPARK_METHODS: Mapping[Api, str] = {
    "rows": "transformWithState",
    "pandas": "transformWithStateInPandas",
}


_PROTOBUF_VERSION = "google.protobuf.runtime_version"
_MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"


def lacks_protobuf() -> str | None:
    """The reason why Spark's own operator cannot run: protobuf is missing in this interpreter, or
    has the wrong version; None if the operator can run. Assumes that the Python workers have the
    same packages. Checked here, because workers load protobuf only in the first batch, and so the
    query would fail only then."""
    try:
        version_error: type[Exception] = import_module(_PROTOBUF_VERSION).VersionError
    except ImportError as error:
        return str(error)
    try:
        import_module(_MESSAGES)
    except (ImportError, version_error) as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """The arguments of a call. `api`: the API of the processor; `broadcast`: DataFrames by name, an
    argument that Spark's own methods do not have."""

    api: Api
    grouped: Any
    processor: StatefulProcessor | ArrowStatefulProcessor
    output_schema: StructType | str
    output_mode: str
    time_mode: str
    initial_state: Any = None
    event_time_column_name: str = ""
    broadcast: Mapping[str, DataFrame] = field(default_factory=dict)

    @property
    def spark_method(self) -> str | None:
        """The name of Spark's method for the call; None if Spark has no operator for the call."""
        return None if self.broadcast else _SPARK_METHODS.get(self.api)

    def check_grouped(self) -> None:
        """Raise ConfigurationError unless `grouped`, and `initial_state` if set, are results of
        `df.groupBy(…)`."""
        initial = () if self.initial_state is None else (self.initial_state,)
        for given in (self.grouped, *initial):
            if not is_grouped(given):
                raise ConfigurationError(
                    "the input and the initial state must be grouped DataFrames, got "
                    f"{type(given).__name__}; pass df.groupBy(…)"
                )

    def on_spark(self, spark_method: str) -> DataFrame:
        """Call Spark's own method of this name, and return the method's result."""
        # `enable` replaces the methods of GroupedData. Classic Spark inherits the original methods
        # from the mixin. Spark Connect defines the methods in GroupedData, and `enable` wraps them.
        is_classic = isinstance(self.grouped, GroupedData)
        owner = PandasGroupedOpsMixin if is_classic else type(self.grouped)
        method = unwrap(getattr(owner, spark_method))
        planned: DataFrame = method(
            self.grouped,
            self.processor,
            self.output_schema,
            self.output_mode,
            self.time_mode,
            self.initial_state,
            self.event_time_column_name,
        )
        return planned
