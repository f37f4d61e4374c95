"""Rows convert between Arrow and Python, with the right key for each row."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_state.errors import ConfigurationError
from spark_state.keyed_state.row_columns import RowColumns

UTC = datetime.UTC
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=UTC)
IN_NEW_YORK = NOON.astimezone(datetime.timezone(datetime.timedelta(hours=-4)))


def columns_of(*key_types: pa.DataType) -> RowColumns:
    names = [f"k{i}" for i in range(len(key_types))]
    fields = [pa.field("value", pa.int64()), *map(pa.field, names, key_types)]
    return RowColumns.of(pa.schema(fields), names)


def test_a_row_is_a_key_in_the_order_of_the_names_and_the_other_columns() -> None:
    table = pa.table({"n": [1, 2], "b": ["x", "y"], "l": [[1], None], "a": [True, None]})
    columns = RowColumns.of(table.schema, ("a", "b"))
    (batch,) = table.to_batches()
    assert list(columns.rows(batch)) == [((True, "x"), (1, [1])), ((None, "y"), (2, None))]
    assert columns.to_batch(list(columns.rows(batch))).equals(batch)


def test_rows_of_key_columns_alone_have_an_empty_state() -> None:
    table = pa.table({"a": [1, 2]})
    columns = RowColumns.of(table.schema, ("a",))
    (batch,) = table.to_batches()
    assert list(columns.rows(batch)) == [((1,), ()), ((2,), ())]
    assert columns.to_value(()) == {}
    assert columns.to_batch([((2,), ())]).to_pydict() == {"a": [2]}


@pytest.mark.parametrize("given", [5, (5,), {"k0": 5}, np.int64(5), 5.0, Decimal(5)])
def test_one_key_column_takes_its_value_and_a_tuple_and_a_dict(given: Any) -> None:
    assert columns_of(pa.int64()).to_key(given) == (5,)


def test_the_key_without_key_columns_is_empty() -> None:
    columns = columns_of()
    assert columns.to_key(()) == columns.to_key({}) == ()
    with pytest.raises(ConfigurationError, match=r"None is no key: without key columns the key is"):
        columns.to_key(None)


def test_a_struct_in_a_key_is_given_as_arrow_gives_it() -> None:
    window = pa.struct([("start", pa.int64()), ("weight", pa.float64())])
    columns = columns_of(window, pa.string())
    values = [{"start": 1, "weight": math.nan}, None]
    table = pa.table({"value": [7, 8], "k0": pa.array(values, window), "k1": ["x", "y"]})
    (batch,) = table.to_batches()
    rows = list(columns.rows(batch))
    assert [key for key, _ in rows] == [((1, math.nan), "x"), (None, "y")]
    for given_key in (({"start": 1, "weight": math.nan}, "x"), {"k0": values[0], "k1": "x"}):
        assert columns.to_key(given_key) == rows[0][0]
    assert columns.to_batch(rows).to_pydict()["k0"][0]["start"] == 1
    alone = columns_of(window)
    for only in ({"start": 1, "weight": 0.5}, (1, 0.5), {"k0": (1, 0.5)}, ((1, 0.5),)):
        assert alone.to_key(only) == ((1, 0.5),)
    with pytest.raises(ConfigurationError, match="'now' is no value of the key column 'k0'"):
        columns.to_key(("now", "x"))


def test_an_array_in_a_key_is_given_as_a_list_or_as_what_was_iterated_over() -> None:
    points = pa.list_(pa.struct([("x", pa.int64())]))
    alone = columns_of(points)
    key = (((1,), None),)
    given_keys = ([{"x": 1}, None], ((1,), None), ([(1,), None],), {"k0": [{"x": 1}, None]}, key)
    for given_key in given_keys:
        assert alone.to_key(given_key) == key
    numbers = columns_of(pa.list_(pa.int64()))
    for given_key in ([5], (5,), ([5],), ((5,),)):
        assert numbers.to_key(given_key) == ((5,),)
    assert numbers.to_key(None) == numbers.to_key((None,)) == (None,)
    assert numbers.to_batch([(((5, None),), (7,))]).to_pydict()["k0"] == [[5, None]]
    with pytest.raises(ConfigurationError, match="is no value of the key column 'k0'"):
        numbers.to_key(["x"])


@pytest.mark.parametrize("given", [(5, "x"), {"k1": "x", "k0": 5}, (np.int32(5), "x")])
def test_several_key_columns_take_a_tuple_and_a_dict(given: Any) -> None:
    assert columns_of(pa.int64(), pa.string()).to_key(given) == (5, "x")


@pytest.mark.parametrize(
    "given",
    [
        5,
        (5,),
        (5, "x", 1),
        (),
        {"k0": 5},
        {"k0": 5, "k2": "x"},
        {"k0": 5, "k1": "x", "k2": 1},
        None,
    ],
)
def test_a_key_of_another_number_of_columns_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="the key columns are k0, k1; give one value"):
        columns_of(pa.int64(), pa.string()).to_key(given)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.int64(), "5"),
        (pa.int64(), True),
        (pa.int64(), 5.5),
        (pa.int64(), np.float32(5.5)),
        (pa.int64(), math.nan),
        (pa.int64(), [5]),
        (pa.string(), 5),
        (pa.bool_(), 1),
        (pa.date32(), "2024-05-01"),
        (pa.decimal128(4, 2), Decimal("1.234")),
        (pa.float64(), 1 << 2000),
    ],
)
def test_a_value_of_another_type_is_refused_and_named(kind: pa.DataType, given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"is no value of the key column 'k0', which is"):
        columns_of(kind).to_key(given)


@pytest.mark.parametrize(
    ("kind", "stored", "given"),
    [
        (pa.float64(), math.nan, -math.nan),
        (pa.float64(), math.nan, np.float64("nan")),
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), 2.0, 2),
        (pa.float32(), 0.1, 0.1),
        (pa.bool_(), True, True),
        (pa.binary(), b"x", b"x"),
        (pa.date32(), NOON.date(), NOON.date()),
        (pa.timestamp("us", "UTC"), NOON, IN_NEW_YORK),
        (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
        (pa.decimal128(4, 2), Decimal("1.50"), Decimal("1.5")),
        (pa.int64(), None, None),
        (pa.string(), None, None),
    ],
)
def test_a_key_is_found_by_what_is_equal_in_its_column(
    kind: pa.DataType, stored: Any, given: Any
) -> None:
    columns = columns_of(kind)
    rows = pa.record_batch([pa.array([7]), pa.array([stored], kind)], columns.schema)
    assert dict(columns.rows(rows)).get(columns.to_key(given)) == (7,)


def test_an_integer_beyond_its_column_is_a_key_that_no_row_has() -> None:
    assert columns_of(pa.int8()).to_key(1000) == (1000,)


def test_callers_own_what_they_get() -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("one", pa.int64()), ("many", pa.list_(pa.list_(pa.int64())))]
    )
    columns = RowColumns.of(schema, ("id",))
    state = (1, [[2]])
    value = columns.to_value(state)
    assert value == {"one": 1, "many": [[2]]}
    value["many"][0].append(3)
    assert state == (1, [[2]])


def test_other_columns_types_and_orders_are_noticed_and_metadata_is_not() -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.string())])
    columns = RowColumns.of(schema.with_metadata({"written": "by"}), ("id",))
    assert columns.schema.equals(schema)
    for other in (
        schema.append(pa.field("b", pa.string())),
        schema.set(1, pa.field("a", pa.int64())),
        pa.schema(reversed(list(schema))),
    ):
        assert not columns.schema.equals(other)
