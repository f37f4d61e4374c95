"""`serve_metrics`: the operators of a session's queries as Prometheus text over HTTP."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.session.connect_sessions import is_connect


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
    """Serve the progress of all operators of cowstate in the running queries of a session.

    - `port`: 0 for a free port; the returned server has the number.
    - `host`: the address to listen on; "0.0.0.0" for all of the machine. The server has no
      authentication, so open the port only to a network that you trust.
    - `subtasks`: True for a series for each subtask, instead of one series for all subtasks.

    A request reads the stores only if a query has finished a batch since the last request. Needs
    `prometheus_client`: `pip install prometheus-client`. Close the server before the session ends.

    Raises ConfigurationError if the library is missing, for a session of Spark Connect, and for an
    address or a port that cannot be used.
    """
    if is_connect(spark):
        raise ConfigurationError(
            "serve_metrics needs a session of classic Spark, and this is a session of Spark "
            "Connect: publish what spark_state.progress(query) returns, or call serve_metrics in "
            "the driver of the server"
        )
    if not isinstance(spark, SparkSession):
        raise ConfigurationError(
            f"serve_metrics needs the session, got {spark!r}: pass what getOrCreate() returns"
        )
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from spark_state.spark.progress.operator_collector import OperatorCollector
    except ImportError as error:
        raise ConfigurationError(
            f"serve_metrics needs prometheus_client ({error}): pip install prometheus-client"
        ) from error
    registry = CollectorRegistry()
    registry.register(OperatorCollector(lambda: spark.streams.active, subtasks=subtasks))
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError, TypeError) as error:  # for a port that is no port, too
        raise ConfigurationError(
            f"cannot serve metrics at {host}:{port!r}: {error}; choose another port, or 0 for a "
            "free one, or another address"
        ) from error
    return MetricsServer(host, server, thread)
