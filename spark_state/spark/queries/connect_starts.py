"""Checks a checkpoint before a query of Spark Connect starts, as operator_starts does for classic
Spark.

The checkpoint is on the server. The client reads the checkpoint's files through Spark's format for
binary files, and a task reads the stores. A setting of the session tells the tasks how the
operators start: Spark copies the session's settings, when a query starts, to the query's tasks. The
setting exists only while a query is being started.

The plan of a Spark Connect query does not show the order of its sources. If the query has one
source, alone or beside a clock, every operator must have an epoch for each batch in which the
offset of this source changes. If the query has more sources, the epochs that an operator must have
are unknown: for example, the source of an initial state makes the operator run before the offset of
the user's source changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from inspect import unwrap
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from spark_state.spark.queries.connect_runs import StoredQuery
from spark_state.spark.queries.named_starts import SETTING_OF_STARTS
from spark_state.spark.queries.offset_log import places_beside_clock
from spark_state.spark.queries.operator_starts import told_starts
from spark_state.spark.queries.query_runs import PROGRESS_RETRY_SECONDS
from spark_state.spark.session.connect_sessions import called_in_task
from spark_state.spark.session.planned_operators import OperatorInputs, PlannedOperator

_METADATA = "metadata"
# Characters that Hadoop reads as a pattern of file names.
_PATTERN_CHARACTERS = re.compile(r"[]{}*?\\[]")


class ConnectFiles:
    """The metadata and the logs of a checkpoint on the server. Each call of `numbers` reads the
    log. `url`: the location as the server writes it; the given location if there is no metadata
    yet."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._reader = spark.read.format("binaryFile")
        self._texts: dict[str, str] = {}
        self.url = self._location = location
        for row in self._rows(f"{location}/{_METADATA}"):
            self.url = str(row["path"]).rpartition("/")[0]
            self._texts[_METADATA] = bytes(row["content"]).decode()

    def _rows(self, path: str) -> Sequence[Any]:
        try:
            # Use Spark's own load: an enabled session replaces the method.
            rows = unwrap(type(self._reader).load)(
                self._reader, _PATTERN_CHARACTERS.sub(r"\\\g<0>", path)
            )
            return list(rows.select("path", "content").collect())
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []

    def numbers(self, log: str) -> list[int]:
        texts = {
            str(row["path"]).rpartition("/")[2]: bytes(row["content"]).decode()
            for row in self._rows(f"{self._location}/{log}")
        }
        self._texts |= {f"{log}/{name}": text for name, text in texts.items()}
        return [int(name) for name in texts if name.isdecimal()]

    def text(self, name: str) -> str | None:
        """The text of the metadata, or of a log's entry; None if there is no such file. Does not
        read the file: the constructor has read the metadata, and `numbers(log)` reads the entries
        of the log."""
        return self._texts.get(name)


def name_connect_starts(spark: SparkSession, location: str | None, stores: StoredQuery) -> None:
    """Tell the tasks of the session's next query how the operators start. Raises the errors of
    operator_starts."""
    spark.conf.unset(SETTING_OF_STARTS)
    if location is None:
        return
    files = ConnectFiles(spark, location)
    if files.text(_METADATA) is None:
        return  # the first start: the server does not tell the location yet
    operators = [_inputs(files, name, root, stores) for name, root in stores.roots or ()]
    text, _ = told_starts(files, partial(called_in_task, spark), operators)
    spark.conf.set(SETTING_OF_STARTS, text)


def forget_connect_starts(spark: SparkSession) -> None:
    """Remove the setting after a start. If the server does not answer, the next start replaces the
    setting."""
    with suppress(PySparkException):
        spark.conf.unset(SETTING_OF_STARTS)


def _inputs(files: ConnectFiles, name: str, root: str, stores: StoredQuery) -> OperatorInputs:
    newest = max(files.numbers("offsets"), default=None)
    places, sources = places_beside_clock(files.text(f"offsets/{newest}"))
    operator = PlannedOperator(
        name, root, 0, PROGRESS_RETRY_SECONDS, store_options=stores.store_options
    )
    return OperatorInputs(operator, places if len(places) == 1 else (), sources)
