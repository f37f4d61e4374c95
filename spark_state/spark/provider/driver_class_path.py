"""Adds the jar to the class path of a driver whose JVM was launched without the jar.

A JVM that `configure` launches reads `spark.jars` and has the jar. A JVM that `spark-submit`,
`pyspark` or an earlier session launched has read the setting before the call of `configure`: Spark
then sends the jar to the executors, and the driver's class loader lacks the jar.
"""

from __future__ import annotations

from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.spark.provider.provider_class import PROVIDER_CLASS

START_WITH_JAR = "spark-submit $(cowstate jar --options) JOB.py"
_TAKES_JARS = "org.apache.spark.util.MutableURLClassLoader"


def add_to_driver(gateway: Any, jar: str) -> None:
    """Let the driver find the classes in `jar`. Call this function before the session exists.

    Spark looks for state store providers, data sources and extensions of sessions in the class
    loader that spark-submit makes. This class loader accepts more jars later.

    Raises ConfigurationError if the driver was started with another class loader.
    """
    if driver_finds_provider(gateway):
        return
    loader = _context_loader(gateway)
    if not gateway.jvm.java.lang.Class.forName(_TAKES_JARS).isInstance(loader):
        raise ConfigurationError(
            "the JVM of this driver was started without cowstate's jar, and its class loader "
            f"({loader.getClass().getName()}) takes no more jars: start it with {START_WITH_JAR}, "
            f"or add {jar} to the class paths of the driver and the executors"
        )
    loader.addURL(gateway.jvm.java.io.File(jar).toURI().toURL())


def driver_finds_provider(gateway: Any) -> bool:
    """Return True if the driver finds the provider: in its class path, or in a jar added later."""
    return _has_provider(_context_loader(gateway))


def launched_with_provider(gateway: Any) -> bool:
    """Return True if the provider is on the class path from the launch of the driver's JVM."""
    return _has_provider(gateway.jvm.java.lang.ClassLoader.getSystemClassLoader())


def _context_loader(gateway: Any) -> Any:
    return gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _has_provider(loader: Any) -> bool:
    return loader.getResource(f"{PROVIDER_CLASS.replace('.', '/')}.class") is not None
