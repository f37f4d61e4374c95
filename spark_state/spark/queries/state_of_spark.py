"""Refuses to start a query whose checkpoint has the state of Spark's own transformWithState.

Spark refuses such a query, too, but only in the first batch, and with an error that names no way
out. So this module reads the checkpoint before the start.
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from checkpoint_store.files.document import Source
from checkpoint_store.provider.spark_log_entry import newest_version_folder
from spark_state.errors import ConfigurationError
from spark_state.spark.session.hadoop_files import HadoopFiles
from spark_state.spark.session.operator_configuration import STORE_KEY

_OPERATOR = re.compile(r'"operatorName"\s*:\s*"transformWithState')


def refuse_state_of_spark(location: str, spark: SparkSession) -> None:
    """Raise ConfigurationError if the checkpoint at `location` has such state, and
    UnsupportedFormatError if a later version of Spark wrote the metadata of its operators."""
    files = HadoopFiles(spark, location)
    for operator in files.names("state"):
        noted = f"state/{operator}/_metadata"
        newest_version_folder(files.names(noted), Source(location, noted))
        for name in files.names(f"{noted}/v2"):
            if _OPERATOR.search(files.text(f"{noted}/v2/{name}") or ""):
                raise has_state_of_spark(location)


def has_state_of_spark(location: str) -> ConfigurationError:
    """The error for a checkpoint at `location` with such state."""
    return ConfigurationError(
        f"{location} has the state of Spark's own transformWithState, which the operator on "
        f"cowstate would not see. Take it over: cowstate adopt {location} --apply --conf "
        f"{STORE_KEY}=…; or start the query with a new checkpoint"
    )
