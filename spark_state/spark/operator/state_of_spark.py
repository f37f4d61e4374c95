"""Refuses to start a query whose checkpoint has the state of Spark's own transformWithState.

Spark refuses it too, in the first batch, but its error says nothing of the way out. So a look into
the checkpoint comes before.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from checkpoint_store.files.document import Source
from checkpoint_store.provider.spark_log_entry import newest_version_folder
from spark_state.errors import ConfigurationError
from spark_state.spark.operator.operator_configuration import STORE_KEY

_OPERATOR = re.compile(r'"operatorName"\s*:\s*"transformWithState')


def refuse_state_of_spark(location: str, spark: SparkSession) -> None:
    """Raise ConfigurationError if the checkpoint at `location` has such state, and
    UnsupportedFormatError if a later Spark noted its operators."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    for operator in _listed(files, jvm.org.apache.hadoop.fs.Path(path, "state")):
        noted = jvm.org.apache.hadoop.fs.Path(operator, "_metadata")
        names = [folder.getName() for folder in _listed(files, noted)]
        newest_version_folder(names, Source(location, f"state/{operator.getName()}/_metadata"))
        for metadata in _listed(files, jvm.org.apache.hadoop.fs.Path(noted, "v2")):
            if _OPERATOR.search(_text(jvm, files, metadata)):
                raise has_state_of_spark(location)


def has_state_of_spark(location: str) -> ConfigurationError:
    """The error of a checkpoint at `location`."""
    return ConfigurationError(
        f"{location} has the state of Spark's own transformWithState, which the operator on "
        f"cowstate would not see. Take it over: cowstate adopt {location} --apply --conf "
        f"{STORE_KEY}=…; or start the query with a new checkpoint"
    )


def _listed(files: Any, folder: Any) -> list[Any]:
    """The paths of what is in a folder; nothing if it does not exist."""
    if not files.exists(folder):
        return []
    return [entry.getPath() for entry in files.listStatus(folder)]


def _text(jvm: Any, files: Any, path: Any) -> str:
    stream = files.open(path)
    try:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
    finally:
        stream.close()
