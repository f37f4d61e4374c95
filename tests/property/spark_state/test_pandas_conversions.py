"""Output DataFrames are converted with the same values and failures as in PySpark's pandas API.

Random values of Python's, NumPy's and pandas' types are columns of DataFrames, alone and several in
one batch.
"""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.types import StructField, StructType

from spark_state.errors import OutputRowError
from spark_state.processor.blocks import BlockSize
from spark_state.processor.pandas_frames import PandasFrames
from spark_state.processor.schemas import arrow_schema
from spark_state.testing.ddl_schemas import schema_of
from tests.support.drawn_seeds import drawn, seeds
from tests.support.processors.random_values import TYPES, random_value

CHUNKED = ["chunked"]
"""In the place of values: pandas gave Spark an array in chunks, on which it trips."""


def column_of(rng: random.Random, field_type: str) -> Any:
    """Draw a column of one or two values, with pandas' own dtype or as Python objects."""
    values = [random_value(rng, field_type)] * rng.choice((1, 2))
    if rng.random() < 0.3:
        values.append(None)
    if rng.random() < 0.3 or isinstance(values[0], tuple | list | dict):
        return pd.Series(values, dtype=object)
    return pd.Series(values)


def of_spark(frame: Any, schema: StructType, form: PandasFrames) -> list[Any] | None:
    """Convert an output DataFrame as Spark's worker does; None if the conversion fails."""
    try:
        batch = PandasToArrowConversion.convert(
            [frame],
            StructType([StructField("_0", schema)]),
            timezone=form.time_zone,
            safecheck=form.safe_casts,
            arrow_cast=True,
            assign_cols_by_name=True,
            int_to_decimal_coercion_enabled=form.ints_to_decimals,
        )
    except Exception as error:
        return CHUNKED if "ChunkedArray" in str(error) else None
    return values_of(batch.column(0).field(0))


def values_of(column: pa.Array[Any]) -> list[Any]:
    """The values as text. Times become numbers and text becomes bytes, because Python lacks some of
    Arrow's values."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        column = column.cast(pa.list_(pa.binary()))
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return [repr(value) for value in column.to_pylist()]


def of_cowstate(frames: list[Any], schema: StructType, form: PandasFrames) -> list[Any] | None:
    output = (each for frame in frames for each in form.output_of_key((), iter([frame])))
    try:
        batches = list(form.batches(output, arrow_schema(schema)))
    except OutputRowError:
        return None
    return [value for batch in batches for value in values_of(batch.column(0))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", seeds(soaks=20))
def test_a_column_has_the_values_of_spark_or_fails_as_there(seed: int | None) -> None:
    rng = random.Random(drawn(seed))
    wrong = []
    for _ in range(200 if seed is None else 4_000):
        field_type = rng.choice(TYPES)
        schema = schema_of(f"v {field_type}", "schema")
        form = PandasFrames(
            time_zone=rng.choice(("UTC", "America/New_York")),
            frame_size=BlockSize(100, 2**31 - 1),
            safe_casts=rng.random() < 0.5,
            ints_to_decimals=rng.random() < 0.5,
        )
        frames = [column_of(rng, field_type).to_frame("v") for _ in range(rng.choice((1, 3)))]
        single = [of_spark(frame, schema, form) for frame in frames]
        if CHUNKED in single:
            continue
        failed = None in single
        here = of_cowstate(frames, schema, form)
        if here != (None if failed else [value for values in single for value in values or ()]):
            columns = [(frame["v"].tolist(), str(frame["v"].dtype)) for frame in frames]
            wrong.append(f"{columns} into {field_type}: {single} in Spark, {here} here")
    assert wrong == []
