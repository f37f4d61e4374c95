"""The form of rows for the pandas API, from the session's configuration."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.processor.blocks import BlockSize
from spark_state.processor.row_form import RowForm

_NO_BOUND = 2**31 - 1
_SIZE = re.compile(r"(-?\d+)(?:b|([kmgtp])(?:b|ib)?)?")
_PANDAS = "spark.sql.execution.pythonUDF.pandas"


def pandas_form(spark: SparkSession) -> RowForm:
    """The form of rows as pandas DataFrames. The largest DataFrame, the time zone and the rules for
    casts come from the session's settings. Raises Spark's own error if pandas is missing or too
    old, and UnsupportedOperationError if the session asks for pandas extension types."""
    require_minimum_pandas_version()
    # pandas takes a third of a second to import, and the row API does not need it.
    from spark_state.processor.pandas_frames import PandasFrames

    extension_types = f"{_PANDAS}.preferIntExtensionDtype"
    if _is_true(spark, extension_types):
        raise UnsupportedOperationError(
            f"{extension_types} is true, but whole numbers beside nulls are floats in cowstate's "
            "DataFrames; set it to false"
        )
    return PandasFrames(
        time_zone=str(spark.conf.get("spark.sql.session.timeZone")),
        frame_size=block_size(spark),
        by_name=_is_true(
            spark, "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName", "true"
        ),
        safe_casts=_is_true(spark, "spark.sql.execution.pandas.convertToArrowArraySafely"),
        ints_to_decimals=_is_true(spark, f"{_PANDAS}.intToDecimalCoercionEnabled"),
    )


def _is_true(spark: SparkSession, key: str, default: str = "false") -> bool:
    return str(spark.conf.get(key, default)).lower() == "true"


def block_size(spark: SparkSession) -> BlockSize:
    """The limits of an Arrow batch in the session: rows and bytes. The setting of the bytes may
    have a unit, such as "64MB"."""
    rows = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000") or 0)
    limit = bytes_of(str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")))
    return BlockSize(rows=rows if rows > 0 else _NO_BOUND, bytes=limit if limit > 0 else _NO_BOUND)


def bytes_of(text: str) -> int:
    """The number of bytes in the text of a Spark setting, such as "64MB"."""
    size = _SIZE.fullmatch(text.strip().lower())
    if size is None:
        raise ConfigurationError(f"{text!r} is no size in bytes; write it like 64MB, or like 1024")
    power = " kmgtp".index(size[2] or " ")
    return int(int(size[1]) * 1024**power)
