"""Marks an output column as the event time of the operators downstream.

Spark's stateful operators find the column of event times by its metadata, and take the watermark at
the place of `withWatermark`, upstream of this operator. So a mark on the column is enough.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from spark_state.spark.input.upstream_watermarks import DELAY_KEY, watermark_delays_ms
from spark_state.spark.session.spark_conditions import analysis_error


def with_event_time(output: DataFrame, name: str, source: DataFrame) -> DataFrame:
    """`output`, with the column of this name marked as event time; unchanged if the name is empty.
    `source`: the input of the operator. Raises Spark's own errors if the column is missing or is
    not a timestamp, or if `source` has no watermark."""
    if not name:
        return output
    spark = output.sparkSession
    (field,) = output.select(name).schema.fields
    delays_ms = watermark_delays_ms(source)
    if not delays_ms:
        raise analysis_error(spark, "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK")
    if not isinstance(field.dataType, TimestampType):
        raise analysis_error(
            spark,
            "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
            eventName=f'"{field.name}"',
            eventType=f'"{field.dataType.simpleString().upper()}"',
        )
    return output.withMetadata(field.name, {DELAY_KEY: max(delays_ms)})
