"""Columns that a change feed adds to the columns of a state."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from checkpoint_store.states.row_fold import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    COMMIT_WATERMARK,
    INSERT,
)
from checkpoint_store.states.state_history import VersionInfo

CHANGE_FIELDS = (
    StructField(CHANGE_TYPE, StringType()),
    StructField(COMMIT_VERSION, LongType()),
    StructField(COMMIT_TIMESTAMP, TimestampType()),
)


def with_change_fields(schema: StructType) -> StructType:
    """The schema of a change feed for rows with schema `schema`."""
    return StructType([*schema.fields, *CHANGE_FIELDS])


def with_watermark(rows: pa.Table, watermark_ms: int | None) -> pa.Table:
    """Add the watermark to the rows as a column of timestamps; null if there is no watermark."""
    value = None if watermark_ms is None else watermark_ms * 1000
    moment = pa.scalar(value, pa.timestamp("us", "UTC"))
    return rows.append_column(COMMIT_WATERMARK, pa.repeat(moment, rows.num_rows))


def with_change_columns(rows: pa.Table, info: VersionInfo) -> pa.Table:
    """Add the columns of a change feed to a state's rows: every row is an insert in the version of
    `info`."""
    moment = pa.scalar(info.timestamp_ms * 1000, pa.timestamp("us", "UTC"))
    columns = (
        (CHANGE_TYPE, pa.scalar(INSERT)),
        (COMMIT_VERSION, pa.scalar(info.version, pa.int64())),
        (COMMIT_TIMESTAMP, moment),
    )
    for name, value in columns:
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows
