"""Reads the facts that the engine needs about a Spark session."""

from __future__ import annotations

import re

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_state.spark.operator.operator_configuration import SessionFacts

_LOCAL = re.compile(r"local\[\s*(\d+|\*)")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,")


def session_facts(spark: SparkSession) -> SessionFacts:
    """The master, parallelism, cores and speculation of a classic (not Connect) session."""
    context = spark.sparkContext
    settings = context.getConf()
    master = settings.get("spark.master", "") or ""
    return SessionFacts(
        master=master,
        default_parallelism=context.defaultParallelism,
        cores_per_executor=_cores(master, settings.get("spark.executor.cores"), context),
        speculation=(settings.get("spark.speculation", "false") or "").lower() == "true",
    )


def _cores(master: str, executor_cores: str | None, context: SparkContext) -> int:
    """The number of tasks that one executor runs at a time, as far as the driver knows."""
    local_cluster = _LOCAL_CLUSTER.match(master)
    if local_cluster:
        return int(local_cluster[1])
    local = _LOCAL.match(master)
    if local and local[1] == "*":
        return int(context._jvm.java.lang.Runtime.getRuntime().availableProcessors())  # type: ignore[union-attr]
    if local or master == "local":
        return int(local[1]) if local else 1
    return int(executor_cores) if executor_cores else 1
