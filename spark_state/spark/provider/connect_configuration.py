"""Configures sessions of Spark Connect, and checks that the server has the jar.

A server that a client starts (`remote("local[2]")`) gets the jar and the interpreter as a classic
session does. Any other server is already running: a client can set the configuration of its
session, but cannot add a jar. So `configure` asks the session if its server has the jar.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.operator.enable import obey_enabled_sessions
from spark_state.spark.provider.change_feed_streams import (
    let_streams_read_changes,
    refuse_partitions_of_streams,
)
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.provider.spark_transforms import start_transforms_on_rocksdb

_JARS_KEY = "spark.jars"
_TABLES = "org.apache.spark.sql.execution.datasources.v2.cowstate.CowStateTableProvider"
_ABSENT = "DATA_SOURCE_NOT_FOUND"
_LOCAL = "local"


def connect_url(options: Mapping[str, Any]) -> str | None:
    """The URL of Spark Connect that a builder with these options connects to; a local master if the
    builder starts the server; None for classic Spark."""
    url = options.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    mode = options.get("spark.api.mode") or os.environ.get("SPARK_API_MODE", "")
    if url is None and str(mode).lower() == "connect":
        url = options.get("spark.master") or os.environ.get("MASTER", _LOCAL)
    return None if url is None else str(url)


def starts_server(url: str, options: Mapping[str, Any]) -> bool:
    """Return True if a builder with these options always starts a server for `url`. Return False if
    `url` is the address of a server, or if the builder may find a running server of this machine,
    whose settings are fixed."""
    reuse = options.get("spark.local.connect.reuse") or os.environ.get("SPARK_LOCAL_CONNECT_REUSE")
    return not url.startswith("sc:") and str(reuse).lower() not in ("1", "true")


def configure_connect_session(spark: SparkSession, jar: str) -> None:
    """Configure an existing session of Spark Connect, as `configure` does for classic Spark. Raises
    ConfigurationError if the server lacks the jar, which is at `jar` on this machine."""
    if not _has_jar(spark, jar):
        raise ConfigurationError(
            "the Spark Connect server lacks cowstate's jar, and a client cannot add it: start the "
            f"server with --jars {jar} (on its own machine: `cowstate jar` prints the path there). "
            "Without the jar leave configure out: operators, and tables that are named by their "
            "path, need no jar"
        )
    spark.conf.set(PROVIDER_KEY, PROVIDER_CLASS)
    from pyspark.sql.connect.streaming.readwriter import DataStreamReader, DataStreamWriter

    let_streams_read_changes(DataStreamReader)
    start_transforms_on_rocksdb(DataStreamWriter)
    refuse_partitions_of_streams(DataStreamWriter)
    obey_enabled_sessions(spark)


def _has_jar(spark: SparkSession, jar: str) -> bool:
    if Path(jar).name in str(spark.conf.get(_JARS_KEY, "")):
        return True
    try:
        _ = spark.read.format(_TABLES).load().schema
    except PySparkException as error:
        # The jar may be on the class path. If Spark finds the jar's class, the error says that the
        # read names no table.
        return error.getCondition() != _ABSENT
    return True


@contextmanager
def quiet_about_jars() -> Iterator[None]:
    """Suppress Spark's warning that the jars cannot be set. Spark sets the builder's options a
    second time when the server runs; the first time has set the jars."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f"Failed to set {_JARS_KEY} ")
        yield
