"""A streaming source that has one row, in the first batch of a query.

Spark logs the offsets of a batch before it runs it. So a first batch that runs again has the row
again, also after a restart, and no other batch has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_state.spark.session.worker_interpreter import stream_of
from spark_state.spark.session.worker_loading import LoadedInWorkers

_BATCHES = "batches"


def first_batch(spark: SparkSession) -> DataFrame:
    """One row in the first batch, none in others."""
    return stream_of(spark, FirstBatchSource, {})


class FirstBatchSource(LoadedInWorkers, DataSource):
    """The format of the source."""

    @classmethod
    def name(cls) -> str:
        """The name of the format, which begins like no other."""
        return "cowstate_first_batch"

    def schema(self) -> StructType:
        """What the row holds does not matter."""
        return StructType([StructField("first", IntegerType(), nullable=False)])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A source that has given no row yet."""
        return FirstBatchReader()


class FirstBatchReader(LoadedInWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source as Spark calls it. Its offset is how many batches have begun, 1 at most."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before the first batch."""
        return {_BATCHES: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """All is one row."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is known."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """After the first batch."""
        return {_BATCHES: 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """That of the row."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """The row."""
        yield (1,)
