"""The state store provider for existing jobs: its jar, and the configuration that turns the
provider on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.operator.enable import obey_enabled_sessions
from spark_state.spark.provider.change_feed_streams import (
    let_streams_read_changes,
    refuse_partitions_of_streams,
)
from spark_state.spark.provider.connect_configuration import (
    configure_connect_session,
    connect_url,
    quiet_about_jars,
    starts_server,
)
from spark_state.spark.provider.driver_class_path import (
    START_WITH_JAR,
    add_to_driver,
    driver_finds_provider,
    launched_with_provider,
)
from spark_state.spark.provider.java_check import java_problem
from spark_state.spark.provider.offline_repartition import guard_offline_repartition
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.provider.spark_transforms import start_transforms_on_rocksdb
from spark_state.spark.queries.foreach_batch import complete_epochs_of_foreach_batch
from spark_state.spark.session.connect_sessions import is_connect
from spark_state.spark.session.replaced_methods import replace_once
from spark_state.spark.session.worker_interpreter import driver_interpreter, use_driver_interpreter
from spark_state.spark.session.worker_loading import requirement
from spark_state.spark.session.worker_sockets import socket_settings

_JARS_KEY = "spark.jars"
# On YARN, spark-submit puts its --jars under this key.
_YARN_JARS_KEY = "spark.yarn.dist.jars"
_CONNECT = ("spark.remote", "spark.api.mode")
_COMPLETED = "_cowstate_completes_launch"
_SPARK_VERSIONS = ("4.2", "4.3")
_JAR = Path(__file__).resolve().parents[2] / "jars" / "cowstate-provider.jar"

_Builder = TypeVar("_Builder", bound=SparkSession.Builder)


def jar_path() -> str:
    """The path of the provider's jar, for `spark-submit --jars`. Raises ConfigurationError when the
    jar was not built."""
    archive = next((parent for parent in _JAR.parents if parent.is_file()), None)
    if archive is not None:
        raise ConfigurationError(
            f"cowstate was imported from {archive}, and Spark can use no jar in an archive: "
            f"install cowstate for the driver (pip install {requirement()}), and pass the wheel "
            "to the executors with --archives instead of --py-files, see "
            "docs/how-to/run-on-a-cluster.md"
        )
    if not _JAR.is_file():
        raise ConfigurationError(
            f"{_JAR} is missing: this copy was not installed by pip. Run `pip install -e .` in the "
            "source tree (it needs Java 17)"
        )
    return str(_JAR)


def configure(builder: _Builder) -> _Builder:
    """Make stateful queries of the session that `builder` creates keep their state in cowstate.

    Adds the jar to the other jars of `spark.jars`, sets the provider class, and returns `builder`.
    A query whose checkpoint is on another provider continues on that provider, see `cowstate
    adopt`. Spark's offline repartitioning would break a checkpoint on cowstate, so
    `StreamingCheckpointManager.repartition` refuses such a checkpoint in this process.

    For `format("cowstate")`: streams read the change feed without an option, and can be written in
    output mode update; tables of Spark's catalog (`saveAsTable`, CREATE TABLE … USING) work.
    `spark.cowstate.enabled=true` has the same effect as `enable`. Without this setting, new queries
    with Spark's own transformWithState start on RocksDB, with a warning: Spark allows no other
    provider for transformWithState.

    Functions of foreachBatch may run any action on their batch, and set any job group. If a query
    is stopped during such a function, Spark prints no StackOverflowError. On a local master, Python
    workers run the interpreter of the driver, unless PYSPARK_PYTHON or spark.pyspark.python is set.
    Python workers talk to Spark over Unix domain sockets, which makes small batches quicker, unless
    spark.python.unix.domain.socket.enabled is set.

    All this also holds for a builder of Spark Connect that starts its server
    (`remote("local[2]")`). Any other server must have the jar: if not, `getOrCreate` raises
    ConfigurationError.

    A JVM without a session, as at the beginning of a job that spark-submit started, gets the jar as
    well.

    Raises ConfigurationError for a version of Spark that the provider does not support, and if this
    process already has a session without the jar. `getOrCreate` raises ConfigurationError if the
    running JVM accepts no jar.
    """
    check_spark_version(pyspark.__version__)
    guard_offline_repartition()
    jar = jar_path()
    options: dict[str, str] = builder._options
    url = connect_url(options)
    if url is not None and not starts_server(url, options):
        replace_once(builder, "getOrCreate", _COMPLETED, partial(_connecting, jar))
        return builder
    _check_running_session(jar)
    builder.config(_JARS_KEY, _joined(options.get(_JARS_KEY, ""), jar))
    builder.config(PROVIDER_KEY, PROVIDER_CLASS)
    let_streams_read_changes()
    start_transforms_on_rocksdb()
    refuse_partitions_of_streams()
    complete_epochs_of_foreach_batch()
    obey_enabled_sessions()
    replace_once(builder, "getOrCreate", _COMPLETED, partial(_launching, builder))
    return builder


def _connecting(jar: str, create: Callable[[], SparkSession]) -> Callable[[], SparkSession]:
    """Let `getOrCreate` configure the session of a running server."""

    def get_or_create() -> SparkSession:
        session = create()
        configure_connect_session(session, jar)
        return session

    return get_or_create


def _joined(*lists: str) -> str:
    """Join comma-separated lists into a list with each jar once."""
    entries = (entry.strip() for jars in lists for entry in jars.split(","))
    return ",".join(dict.fromkeys(_local_path(entry) for entry in entries if entry))


def _local_path(entry: str) -> str:
    """The path if `entry` is a URI with the scheme `file:`, otherwise `entry`. At the launch of the
    JVM, Spark turns paths into such URIs."""
    return unquote(urlsplit(entry).path) if entry.startswith("file:") else entry


def _launching(
    builder: SparkSession.Builder, create: Callable[[], SparkSession]
) -> Callable[[], SparkSession]:
    """Let `builder.getOrCreate` keep the jars of the JVM's launch, and choose the interpreter of
    Python workers.

    The jars of the launch come from `spark-submit --jars` and `--packages`, PYSPARK_SUBMIT_ARGS or
    spark-defaults.conf. The builder's value of `spark.jars` would replace these jars on the
    executors.
    """

    def get_or_create() -> SparkSession:
        options, url = dict(builder._options), connect_url(builder._options)
        if url is not None:
            # The server runs in the JVM of a classic session.
            options = {k: options[k] for k in options if k not in _CONNECT} | {"spark.master": url}
        conf = SparkConf(loadDefaults=False)
        for key, value in options.items():
            conf.set(key, str(value))
        with driver_interpreter(options), quiet_about_jars():
            _launch(conf)
            add_to_driver(SparkContext._gateway, str(_JAR))
            launched = dict(SparkConf().getAll())
            builder.config(
                _JARS_KEY, _joined(launched.get(_JARS_KEY, ""), builder._options[_JARS_KEY])
            )
            if SparkContext._active_spark_context is None:
                jvm: Any = SparkContext._jvm
                temporary = str(jvm.java.lang.System.getProperty("java.io.tmpdir"))
                for key, value in socket_settings({**launched, **options}, temporary).items():
                    builder.config(key, value)
            session = create()
        if is_connect(session):
            configure_connect_session(session, str(_JAR))
        use_driver_interpreter(session)
        return session

    return get_or_create


def _launch(conf: SparkConf) -> None:
    """Launch the JVM, as a session would, unless a JVM is running. Raises ConfigurationError if the
    JVM does not start because of Java."""
    try:
        SparkContext._ensure_initialized(conf=conf)
    except PySparkRuntimeError:
        problem = java_problem()
        if problem is None:
            raise
        raise ConfigurationError(problem) from None


def check_spark_version(version: str) -> None:
    """Raise ConfigurationError unless the provider runs on this version of Spark."""
    if ".".join(version.split(".")[:2]) not in _SPARK_VERSIONS:
        raise ConfigurationError(
            f"the state store provider runs on Spark {' and '.join(_SPARK_VERSIONS)}, but this is "
            f"Spark {version}: pip install 'pyspark>={_SPARK_VERSIONS[0]},<4.4'"
        )


def _check_running_session(jar: str) -> None:
    session = SparkSession.getActiveSession()
    if session is not None and is_connect(session):
        configure_connect_session(session, jar)
        return
    context = SparkContext._active_spark_context
    if context is None:
        return
    # An earlier application may have left the jar in this JVM. The present executors lack it.
    is_sent = any(jar in context.getConf().get(key, "") for key in (_JARS_KEY, _YARN_JARS_KEY))
    has_jar = driver_finds_provider if is_sent else launched_with_provider
    if not has_jar(context._gateway):
        raise ConfigurationError(
            "a Spark application without cowstate's jar is running: call spark.stop() before "
            f"configure, or start it with the jar: {START_WITH_JAR}; pyspark and spark-shell take "
            "the same options"
        )
