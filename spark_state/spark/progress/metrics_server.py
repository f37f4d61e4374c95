"""`serve_metrics`: the queries of a session and their operators as Prometheus text over HTTP."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.session.connect_sessions import is_connect, is_session


class MetricsServer:
    """A small HTTP server, which runs until `close`. Also a context manager. `host` and `port`: the
    address on which the server listens."""

    def __init__(self, host: str, server: Any, thread: Any) -> None:
        self.host = host
        self.port: int = server.server_port
        self._server = server
        self._thread = thread

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving. Safe to call again."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_metrics(
    spark: SparkSession, port: int = 0, host: str = "127.0.0.1", *, subtasks: bool = False
) -> MetricsServer:
    """Serve the progress of the running queries of a session: their batches, their stateful
    operators on any state store provider, and their operators of cowstate.

    - `port`: 0 for a free port; the returned server has the number.
    - `host`: the address to listen on; "0.0.0.0" for all of the machine. The server has no
      authentication, so open the port only to a network that you trust.
    - `subtasks`: True for a series for each subtask of an operator of cowstate, instead of one
      series for all subtasks. Not with Spark Connect.

    A request reads the stores only if a query has finished a batch since the last request. With
    Spark Connect, no request reads a store in this process: operators of cowstate are among the
    stateful operators if the session is enabled. Needs `prometheus_client`: `pip install
    prometheus-client`. Close the server before the session ends.

    Raises ConfigurationError if the library is missing, and for an address or a port that cannot be
    used.
    """
    if not is_session(spark):
        raise ConfigurationError(
            f"serve_metrics needs the session, got {spark!r}: pass what getOrCreate() returns"
        )
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from spark_state.spark.progress.operator_collector import OperatorCollector
        from spark_state.spark.progress.query_collector import QueryCollector
    except ImportError as error:
        raise ConfigurationError(
            f"serve_metrics needs prometheus_client ({error}): pip install prometheus-client"
        ) from error
    registry = CollectorRegistry()
    registry.register(QueryCollector(lambda: spark.streams.active))
    if not is_connect(spark):
        registry.register(OperatorCollector(lambda: spark.streams.active, subtasks=subtasks))
    elif subtasks:
        raise ConfigurationError("subtasks=True needs a session of classic Spark: leave it out")
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError, TypeError) as error:  # for a port that is no port, too
        raise ConfigurationError(
            f"cannot serve metrics at {host}:{port!r}: {error}; choose another port, or 0 for a "
            "free one, or another address"
        ) from error
    return MetricsServer(host, server, thread)
