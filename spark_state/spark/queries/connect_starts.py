"""Looks at a checkpoint before a query of Spark Connect starts, as operator_starts does.

The checkpoint is on the server, which reads its files in Spark's format for binary files, and a
task looks at the stores. A setting of the session tells the tasks: Spark copies the settings that a
query starts with to its tasks. The setting is there only for the time of a start.

The plan of a query does not tell the order of its sources here. If the query has one source, and a
clock or none, all operators must have the epochs of the batches in which this source moved.
Otherwise nobody knows which epochs an operator must have: an initial state fills an operator before
the user's source has moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from spark_state.spark.queries.connect_runs import StoredQuery
from spark_state.spark.queries.offset_log import places_beside_clock
from spark_state.spark.queries.operator_starts import (
    SETTING_OF_STARTS,
    Reached,
    WayBack,
    reached_in_store,
    store_of,
    take_back_in_store,
    told_starts,
)
from spark_state.spark.queries.query_runs import PROGRESS_RETRY_SECONDS
from spark_state.spark.session.connect_sessions import called_in_task
from spark_state.spark.session.planned_operators import OperatorInputs, PlannedOperator

_METADATA = "metadata"
# Characters that Hadoop reads as a pattern of file names.
_PATTERN_CHARACTERS = re.compile(r"[]{}*?\\[]")


class ConnectFiles:
    """The metadata and the logs of a checkpoint on the server. A log is read whenever its numbers
    are asked for. `url`: its location as the server tells it; as it was given if it has no metadata
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
            # An enabled session answers some loads itself, which are no concern here.
            rows = unwrap(type(self._reader).load)(
                self._reader, _PATTERN_CHARACTERS.sub(r"\\\g<0>", path)
            )
            return list(rows.select("path", "content").collect())
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []

    def numbers(self, log: str) -> list[int]:
        """See HadoopFiles."""
        texts = {
            str(row["path"]).rpartition("/")[2]: bytes(row["content"]).decode()
            for row in self._rows(f"{self._location}/{log}")
        }
        self._texts |= {f"{log}/{name}": text for name, text in texts.items()}
        return [int(name) for name in texts if name.isdecimal()]

    def text(self, name: str) -> str | None:
        """See HadoopFiles."""
        return self._texts.get(name)


def name_connect_starts(spark: SparkSession, location: str | None, stores: StoredQuery) -> None:
    """Tell the tasks of the query that this session starts next how its operators start. Raises as
    operator_starts does."""
    spark.conf.unset(SETTING_OF_STARTS)
    if location is None:
        return
    files = ConnectFiles(spark, location)
    if files.text(_METADATA) is None:
        return  # the first start: the server does not tell the location yet
    operators = [_inputs(files, name, root, stores) for name, root in stores.roots or ()]

    text, _ = told_starts(files, _Stores(spark, files.url, operators), operators)
    spark.conf.set(SETTING_OF_STARTS, text)


@dataclass(frozen=True, slots=True)
class _Stores:
    """See StoresOfQuery. A task of the server looks at them."""

    spark: SparkSession
    checkpoint: str
    operators: Sequence[OperatorInputs]

    def reached(self, query_id: str) -> list[Reached]:
        stores = [(*store_of(inputs, query_id), self.checkpoint) for inputs in self.operators]
        return [Reached(*called_in_task(self.spark, reached_in_store, *store)) for store in stores]

    def take_back(self, query_id: str, inputs: OperatorInputs, way_back: WayBack) -> None:
        called_in_task(self.spark, take_back_in_store, *store_of(inputs, query_id), way_back)


def forget_connect_starts(spark: SparkSession) -> None:
    """The query has started. If the server cannot be asked, the next start replaces the setting."""
    with suppress(PySparkException):
        spark.conf.unset(SETTING_OF_STARTS)


def _inputs(files: ConnectFiles, name: str, root: str, stores: StoredQuery) -> OperatorInputs:
    newest = max(files.numbers("offsets"), default=None)
    places, sources = places_beside_clock(files.text(f"offsets/{newest}"))
    operator = PlannedOperator(
        name, root, 0, PROGRESS_RETRY_SECONDS, store_options=stores.store_options
    )
    return OperatorInputs(operator, places if len(places) == 1 else (), sources)
