"""Reads the facts that the engine needs about a Spark session, and changes a setting inside a
`with` block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.logical_plans import entries_of
from spark_state.spark.session.operator_configuration import SessionFacts

_LOCAL = re.compile(r"local\[\s*(\d+|\*)")
_PYTHON_MEMORY_KEY = "spark.executor.pyspark.memory"
_PARALLELISM_KEY = "spark.default.parallelism"
_EXECUTOR_CORES_KEY = "spark.executor.cores"
_SPECULATION_KEY = "spark.speculation"
_FACTS = (
    "spark.master",
    _PARALLELISM_KEY,
    _EXECUTOR_CORES_KEY,
    _SPECULATION_KEY,
    _PYTHON_MEMORY_KEY,
)
_ROWS_FOR_EVERY_CORE = 100_000


def session_facts(spark: SparkSession) -> SessionFacts:
    """The master, parallelism, cores and speculation of a session."""
    settings = application_settings(spark, _FACTS)
    master = settings.get("spark.master", "")
    if is_connect(spark):
        parallelism = processors = _server_parallelism(spark, settings, master)
    else:
        context: Any = spark.sparkContext
        parallelism = context.defaultParallelism
        processors = context._jvm.java.lang.Runtime.getRuntime().availableProcessors()
    return SessionFacts(
        master=master,
        default_parallelism=parallelism,
        cores_per_executor=_cores(master, settings.get(_EXECUTOR_CORES_KEY), processors),
        speculation=settings.get(_SPECULATION_KEY, "false").lower() == "true",
        python_memory=settings.get(_PYTHON_MEMORY_KEY),
        is_connect=is_connect(spark),
    )


def application_settings(spark: SparkSession, keys: Iterable[str]) -> dict[str, str]:
    """Return the settings of a session's application that have one of `keys`.

    A session of Spark Connect has the settings of its server as its own settings, and gets all with
    one request. In a classic session `getConf` copies all settings, with three calls to the JVM for
    each, so the original is asked."""
    if is_connect(spark):
        settings = dict(spark.conf.getAll)
        return {key: settings[key] for key in keys if key in settings}
    conf: Any = spark.sparkContext._conf
    found = {key: conf.get(key, None) for key in keys}
    return {key: text for key, text in found.items() if text is not None}


def _server_parallelism(spark: SparkSession, settings: Mapping[str, str], master: str) -> int:
    """The default parallelism of a Spark Connect server. If the settings do not tell the number, a
    small job counts the partitions of `spark.range`."""
    local = _LOCAL.match(master)
    if settings.get(_PARALLELISM_KEY):
        return int(settings[_PARALLELISM_KEY])
    if local and local[1] != "*":
        return int(local[1])
    rows = spark.range(_ROWS_FOR_EVERY_CORE)
    return rows.select(F.spark_partition_id()).distinct().count()


def _cores(master: str, executor_cores: str | None, processors: int) -> int:
    """The number of tasks that one executor runs at a time, as far as the driver knows.
    `processors`: the number of processors of the driver's machine."""
    local = _LOCAL.match(master)
    if local and local[1] == "*":
        return processors
    if local or master == "local":
        return int(local[1]) if local else 1
    return int(executor_cores) if executor_cores else 1


def settings_of(session: Any) -> dict[str, str]:
    return entries_of(session.conf().getAll())


@contextmanager
def changed_setting(spark: SparkSession, key: str, text: str) -> Iterator[None]:
    """Set a setting of the session inside the `with` block, and put the former value back."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, text)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)
