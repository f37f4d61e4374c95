"""Values of output rows become those of Spark's row API, and no value loses anything."""

from __future__ import annotations

import array
import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_state.errors import OutputRowError
from spark_state.processor.output_rows import OutputEncoder

PLACE = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
MAP = pa.map_(pa.string(), pa.int64())
DAY = datetime.date(2020, 1, 2)
MIDNIGHT = datetime.datetime(2020, 1, 2)
AWARE = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
SWAPPED = Row(lon=20.0, lat=10.0)
IN_ORDER = {"lat": 10.0, "lon": 20.0}

CONVERTED: list[tuple[pa.DataType, Any, Any]] = [
    (PLACE, SWAPPED, IN_ORDER),
    (pa.list_(PLACE), [SWAPPED, None], [IN_ORDER, None]),
    (pa.map_(pa.string(), PLACE), {"x": SWAPPED}, [("x", IN_ORDER)]),
    (pa.struct([("at", PLACE)]), Row(at=SWAPPED), {"at": IN_ORDER}),
    (MAP, [("a", 1), ("b", None)], [("a", 1), ("b", None)]),
    (pa.map_(PLACE, pa.int64()), [(IN_ORDER, 1)], [(IN_ORDER, 1)]),
    (pa.list_(MAP), [[("a", 1)]], [[("a", 1)]]),
    (pa.list_(pa.int64()), array.array("q", [1]), [1]),
    (pa.float32(), 0.1, 0.10000000149011612),
    (pa.decimal128(10, 2), Decimal("1.500"), Decimal("1.50")),
    (pa.date32(), 3, datetime.date(1970, 1, 4)),
    (pa.timestamp("us", "UTC"), MIDNIGHT, AWARE),
    (pa.timestamp("us", "UTC"), np.datetime64("2020-01-02", "ns"), AWARE),
    (pa.timestamp("us"), np.datetime64("2020-01-02", "ns"), MIDNIGHT),
    (pa.timestamp("us"), 5, datetime.datetime(1970, 1, 1, 0, 0, 0, 5)),
    (pa.duration("us"), 5, datetime.timedelta(microseconds=5)),
]


@pytest.mark.parametrize(("value_type", "value", "expected"), CONVERTED)
def test_values_become_those_of_sparks_row_api(
    value_type: pa.DataType, value: Any, expected: Any
) -> None:
    encoder = OutputEncoder(pa.schema([("x", value_type)]))
    encoder.add([Row(x=value), Row(x=None)])
    assert encoder.batch().column("x").to_pylist() == [expected, None]


REFUSED: list[tuple[pa.DataType, Any]] = [
    (pa.decimal128(10, 2), Decimal("1.005")),
    (pa.decimal128(4, 2), Decimal(100)),
    (pa.int8(), 128.0),
    (pa.float32(), 2**24 + 1),
    (pa.date32(), 0.5),
    (pa.timestamp("us", "UTC"), pd.Timestamp("2020-01-01 00:00:00.000000001")),
    (pa.timestamp("us", "UTC"), DAY),
    (MAP, ["ab"]),
    (MAP, [(None, 1)]),
    (PLACE, (1.0,)),
    (PLACE, [1.0, 2.0, 3.0]),
    (pa.list_(pa.int64()), b"ab"),
]


@pytest.mark.parametrize(("value_type", "value"), REFUSED)
def test_a_value_that_would_lose_something_or_that_spark_refuses_is_refused(
    value_type: pa.DataType, value: Any
) -> None:
    encoder = OutputEncoder(pa.schema([("x", value_type)]))
    with pytest.raises(OutputRowError, match=r"field 'x' expects .* in Row\(x="):
        encoder.add([Row(x=value)])
