"""The Spark session in which a command runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.provider.session_configuration import configure
from spark_state.spark.session.operator_settings import check_keys

_PROVIDER_SETTINGS = "org.apache.spark.sql.execution.streaming.state.cowstate.SessionSettings"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("command_log4j2.properties")
# The JVM logs warnings before a session can set the log level.
_QUIET = f"'-Dlog4j2.configurationFile={_LOGGING.as_uri()}'"


@contextmanager
def command_session(
    name: str, master: str, settings: Mapping[str, str], *, shows_stages: bool = False
) -> Iterator[SparkSession]:
    """Yield the session of this process, or a new session that ends with the `with` block.
    `shows_stages`: show Spark's own progress bar, if there is a terminal. Raises ConfigurationError
    if Spark does not start, and if `settings` has a misspelled key of cowstate."""
    check_keys(settings)
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
    spark = _started(configure(builder), master)
    try:
        yield spark
    finally:
        spark.stop()


def _started(builder: SparkSession.Builder, master: str) -> SparkSession:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        try:
            spark = builder.getOrCreate()
            # Spark checks the settings of SQL only at first use, so use the settings now.
            settings_of_sql = spark._jsparkSession.sessionState().conf()
        except (PySparkException, Py4JError) as error:
            raise ConfigurationError(
                f"Spark does not start with --master {master}: {_reason(error)}. See to --master "
                "and --conf"
            ) from error
        try:
            jvm: Any = spark._jvm
            getattr(jvm, _PROVIDER_SETTINGS).check(settings_of_sql)
        except IllegalArgumentException as error:
            spark.stop()
            raise ConfigurationError(_reason(error)) from error
        return spark


def _reason(error: Exception) -> str:
    """The first line of the message of the error's root cause."""
    while (cause := getattr(error, "_cause", None)) is not None:
        error = cause
    java = getattr(error, "java_exception", None)
    lines = str(error if java is None else java.toString()).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
