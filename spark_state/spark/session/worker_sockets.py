"""Chooses Unix domain sockets for the traffic between Spark's JVM and Python workers.

Spark uses TCP on the loopback interface by default. Over TCP a small write waits for an
acknowledgement that the other end delays, and the wait makes each task with a Python worker slower.
A write to a Unix domain socket does not wait; `tests/benchmarks/latency.py --sockets` compares both
kinds of sockets. Spark chooses the kind of sockets once, when the context starts.

Spark creates the sockets in its temporary directory. The path of a socket has at most 104
characters, and Spark's file names take 43 of these. On a cluster nobody knows the temporary
directories of the executors, and YARN's are too long, so there the sockets are in /tmp.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from spark_state.spark.session.operator_configuration import is_local_master
from spark_state.spark.session.session_facts import application_settings

SOCKETS_KEY = "spark.python.unix.domain.socket.enabled"
DIRECTORY_KEY = "spark.python.unix.domain.socket.dir"
_APPLICATION_KEY = "spark.app.id"
_VARIABLE = "PYSPARK_UDS_MODE"
_MOST_CHARACTERS = 104 - len("/.") - len("01234567-0123-0123-0123-0123456789ab") - len(".sock")
_SHORT = "/tmp"

_hinted: set[str] = set()


def socket_settings(settings: Mapping[str, Any], temporary: str) -> dict[str, str]:
    """Return the settings that turn on the sockets, for a context that is about to start. Return no
    settings if the user has turned the sockets on or off, or if sockets cannot be created.
    `temporary`: the temporary directory of the driver's JVM."""
    if SOCKETS_KEY in settings or _VARIABLE in os.environ:
        return {}
    directory = settings.get(DIRECTORY_KEY)
    if directory is None and is_local_master(str(settings.get("spark.master", ""))):
        directory = temporary
    if directory is not None and _fits(str(directory)):
        return {SOCKETS_KEY: "true"}
    if DIRECTORY_KEY not in settings and _fits(_SHORT):
        return {SOCKETS_KEY: "true", DIRECTORY_KEY: _SHORT}
    return {}


def _fits(directory: str) -> bool:
    """Return True if this user can create a socket in a directory of this machine."""
    return len(directory) <= _MOST_CHARACTERS and os.access(directory, os.W_OK | os.X_OK)


def hint_at_sockets(spark: SparkSession) -> None:
    """Warn once for each application if the user has turned Unix domain sockets neither on nor off:
    then Spark uses TCP."""
    settings = application_settings(spark, (_APPLICATION_KEY, SOCKETS_KEY))
    application = settings.get(_APPLICATION_KEY, "")
    if SOCKETS_KEY in settings or _VARIABLE in os.environ or application in _hinted:
        return
    _hinted.add(application)
    warnings.warn(
        f"Python workers of this session talk to Spark over TCP, which makes each task of a small "
        f"batch wait. Set {SOCKETS_KEY}=true before the session starts, or build the session with "
        "spark_state.configure, which sets it; =false keeps TCP without this hint",
        stacklevel=4,
    )
