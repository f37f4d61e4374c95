"""A streaming source with a single row, in the first batch of a query.

Spark logs the offsets of a batch before the batch runs. So if the first batch runs again, also
after a restart, the batch has the row again. No later batch has the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_state.spark.session.worker_interpreter import stream_of
from spark_state.spark.session.worker_loading import LoadedInWorkers

BATCHES = "batches"


def first_batch(spark: SparkSession) -> DataFrame:
    """One row in the first batch, no rows in later batches."""
    return stream_of(spark, FirstBatchSource, {})


class FirstBatchSource(LoadedInWorkers, DataSource):
    """The data source with a single row."""

    @classmethod
    def name(cls) -> str:
        """The name of the format. No other format's name begins with this name."""
        return "cowstate_first_batch"

    def schema(self) -> StructType:
        """One column, whose value does not matter."""
        return StructType([StructField("first", IntegerType(), nullable=False)])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader that begins with the first batch."""
        return FirstBatchReader()


class FirstBatchReader(LoadedInWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source with the methods that Spark calls. Its offset is the number of batches that have
    begun, at most 1."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset before the first batch."""
        return {BATCHES: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: the last offset is known."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The offset after the first batch."""
        return {BATCHES: 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition, for the row."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)
