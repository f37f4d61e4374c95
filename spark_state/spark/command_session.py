"""The Spark session in which a command runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from spark_state.spark.provider import configure


@contextmanager
def command_session(
    name: str, master: str, settings: Mapping[str, str], *, shows_stages: bool = False
) -> Iterator[SparkSession]:
    """The session of this process, or else one for as long as a `with` lasts. `shows_stages`: with
    Spark's own progress bar, if somebody looks."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    shows = shows_stages and sys.stderr.isatty()
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", str(shows).lower())
        .config("spark.log.level", "ERROR")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure(builder).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
