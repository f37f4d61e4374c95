"""A processor gets Spark's Rows with Spark's values."""

from __future__ import annotations

import datetime
import pickle
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_state.processor.rows import column_values, row_type, rows_of

MOMENT = datetime.datetime(2013, 7, 1, 12, 30, 0, 123456, tzinfo=datetime.UTC)


def test_a_row_is_a_plain_row_to_its_user() -> None:
    table = pa.table({"id": [1, 2], "name": ["a", None]})
    first, second = rows_of(table, row_type(tuple(table.column_names)))
    assert first == Row(id=1, name="a")
    assert (first.id, first["name"], second.name) == (1, "a", None)
    assert first.asDict() == {"id": 1, "name": "a"}
    assert repr(first) == "Row(id=1, name='a')"
    assert "id" in first
    copied = pickle.loads(pickle.dumps(first))
    assert type(copied) is Row
    assert copied == first


def test_names_that_a_tuple_has_keep_their_meaning_as_in_spark() -> None:
    table = pa.table({"count": [7], "class": [8], "a b": [9]})
    (row,) = rows_of(table, row_type(tuple(table.column_names)))
    assert row["count"] == 7
    assert row.count(7) == 1
    assert row["class"] == getattr(row, "class") == 8
    assert row["a b"] == 9
    with pytest.raises(AttributeError):
        _ = row.missing


def test_many_rows_come_in_order() -> None:
    table = pa.table({"id": range(50_000)})
    assert [row.id for row in rows_of(table, row_type(("id",)))] == list(range(50_000))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata", "+02:00", None])
def test_timestamps_are_what_arrow_gives(zone: str | None) -> None:
    moments = [MOMENT, None, MOMENT.replace(year=1900), MOMENT.replace(month=1)]
    naive = [moment and moment.replace(tzinfo=None) for moment in moments]
    column = pa.array(moments if zone else naive, pa.timestamp("us", zone))
    values = column_values(column)
    assert values == column.to_pylist()
    assert [v and v.utcoffset() for v in values] == [
        v and v.utcoffset() for v in column.to_pylist()
    ]


def test_timestamps_carry_the_session_zone() -> None:
    column = pa.array([MOMENT], pa.timestamp("us", "America/New_York"))
    assert column_values(column)[0].tzinfo == ZoneInfo("America/New_York")
