"""The Spark session in which a command runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spark_state.spark.provider.session_configuration import configure

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("command_log4j2.properties")
# The JVM warns before a session can tell it not to.
_QUIET = f"'-Dlog4j2.configurationFile={_LOGGING.as_uri()}'"


@contextmanager
def command_session(
    name: str, master: str, settings: Mapping[str, str], *, shows_stages: bool = False
) -> Iterator[SparkSession]:
    """The session of this process, or a new one that ends with the `with`. `shows_stages`: show
    Spark's own progress bar, if there is a terminal."""
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
    )
    options = f"{_QUIET} {settings.get(_JAVA_OPTIONS, '')}".strip()
    for key, value in {**settings, _JAVA_OPTIONS: options}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        spark = configure(builder).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
