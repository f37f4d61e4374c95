"""Starts a small Spark session for tests, and stops the session together with its JVM."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from pyspark import SparkContext
from pyspark.sql import SparkSession

import spark_state
from tests.support.sessions.java_options import DRIVER_OPTIONS

# The gateways of executors read the credentials from the environment, as in production.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def start_spark(master: str, folder: Path) -> SparkSession:
    """A session on `master`, without UI. Warehouse, scratch space and stores are in `folder`."""
    # Short queries spend more time in the second compiler than its code saves. Without the second
    # compiler, Java reserves only a fifth of the code cache, and a thousand queries fill the cache.
    java_options = (
        f"-Dderby.system.home={folder / 'derby'}",
        "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=240m",
    )
    builder = (
        SparkSession.builder.master(master)
        .appName("cowstate-tests")
        .config("spark.jars", spark_state.jar_path())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # Each batch sends rows between the JVM and Python workers several times.
        .config("spark.python.unix.domain.socket.enabled", "true")
        # Other work on the machine may slow a process down a hundred times.
        .config("spark.python.authenticate.socketTimeout", "600s")
        .config("spark.network.timeout", "1200s")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.driver.extraJavaOptions", " ".join(java_options))
        .config("spark.executor.extraJavaOptions", os.environ.get(DRIVER_OPTIONS, ""))
        # The stop of maintenance holds a lock. A maintenance thread may wait for the lock until
        # this timeout.
        .config("spark.sql.streaming.stateStore.maintenanceShutdownTimeout", "5s")
        .config("spark.sql.streaming.stateStore.maintenanceForceShutdownTimeout", "5s")
        .config("spark.cowstate.store", (folder / "store").as_uri())
    )
    with mock.patch.dict(os.environ, CREDENTIALS):
        return builder.getOrCreate()


def stop_spark(session: SparkSession) -> None:
    """Stop the session and its JVM, which `SparkSession.stop` leaves running."""
    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
