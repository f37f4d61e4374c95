"""The form of rows of the pandas API, as the session's configuration has it."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.processor.row_form import RowForm
from spark_state.spark.operator.connect_sessions import is_connect

_NO_BOUND = 2**31 - 1
_SIZE = re.compile(r"(-?\d+)(?:b|([kmgtp])(?:b|ib)?)?")
_PANDAS = "spark.sql.execution.pythonUDF.pandas"


def pandas_form(spark: SparkSession) -> RowForm:
    """pandas DataFrames with the sizes, time zone and casts of the session.

    Raises Spark's own error if pandas is missing or too old, and UnsupportedOperationError for
    extension types.
    """
    require_minimum_pandas_version()
    # pandas takes a third of a second to import, and the row API does not need it.
    from spark_state.processor.pandas_frames import PandasFrames

    extension_types = f"{_PANDAS}.preferIntExtensionDtype"
    if _is_true(spark, extension_types):
        raise UnsupportedOperationError(
            f"{extension_types} is true, but whole numbers beside nulls are floats in cowstate's "
            "DataFrames; set it to false"
        )
    rows = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000") or 0)
    return PandasFrames(
        time_zone=str(spark.conf.get("spark.sql.session.timeZone")),
        rows_per_frame=rows if rows > 0 else _NO_BOUND,
        bytes_per_frame=_bytes_per_frame(spark),
        by_name=_is_true(
            spark, "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName", "true"
        ),
        safe_casts=_is_true(spark, "spark.sql.execution.pandas.convertToArrowArraySafely"),
        ints_to_decimals=_is_true(spark, f"{_PANDAS}.intToDecimalCoercionEnabled"),
    )


def _is_true(spark: SparkSession, key: str, default: str = "false") -> bool:
    return str(spark.conf.get(key, default)).lower() == "true"


def _bytes_per_frame(spark: SparkSession) -> int:
    """The bound on bytes, which Spark reads with units."""
    if is_connect(spark):
        limit = bytes_of(str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")))
    else:
        limit = spark._jsparkSession.sessionState().conf().arrowMaxBytesPerBatch()
    return int(limit) if limit > 0 else _NO_BOUND


def bytes_of(text: str) -> int:
    """The bytes that a setting of Spark names, such as "64MB"."""
    size = _SIZE.fullmatch(text.strip().lower())
    if size is None:
        raise ConfigurationError(f"{text!r} is no size in bytes; write it like 64MB, or like 1024")
    power = " kmgtp".index(size[2] or " ")
    return int(int(size[1]) * 1024**power)
