"""Keys and values in RocksDB survive the round trip through bytes, and the bytes keep the key
order."""

from __future__ import annotations

import datetime
import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_state.codecs.state_codecs import PLAIN_FORMS
from spark_state.frozen_keys import frozen, in_order
from spark_state.keyed_state.key_columns import KeyColumns, StoredKeys
from spark_state.rocksdb.key_arrays import can_be_encoded
from spark_state.rocksdb.ordered_bytes import TupleBytes
from spark_state.rocksdb.packed_values import PackedValues
from spark_state.rocksdb.row_keys import RowKeys
from spark_state.serializers import StructSerializer
from spark_state.state_descriptor import StateDescriptor
from tests.support.examples import examples

texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\x01\xff"))
moments = st.datetimes(
    datetime.datetime(1800, 1, 1), datetime.datetime(2300, 1, 1), allow_imaginary=False
).map(lambda moment: moment.replace(fold=0))
days = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
spans = st.timedeltas(datetime.timedelta(-(10**8)), datetime.timedelta(10**8))
fractions = st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])
decimals = st.integers(-(10**38) + 1, 10**38 - 1).map(
    lambda units: Decimal(units).scaleb(-10, Context(80))
)
PLAIN: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), fractions),
    "text": (pa.string(), texts),
    "binary": (pa.binary(), st.binary() | st.lists(st.sampled_from([0, 1, 255])).map(bytes)),
    "date": (pa.date32(), days),
    "moment": (pa.timestamp("us"), moments),
    "duration": (pa.duration("us"), spans),
    "decimal": (pa.decimal128(38, 10), decimals),
}
NESTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    f"{kind} in {outer}": made
    for kind, (arrow_type, values) in PLAIN.items()
    for outer, made in {
        "list": (pa.list_(arrow_type), st.lists(st.none() | values, max_size=3)),
        "struct": (
            pa.struct([("a", arrow_type), ("b", pa.string())]),
            st.tuples(st.none() | values, texts),
        ),
    }.items()
}
KEYS = PLAIN | NESTED


def keys_of(kind: str) -> st.SearchStrategy[tuple[Any, ...]]:
    _, values = KEYS[kind]
    field = (st.none() | values).map(frozen)
    return st.tuples(field, st.none() | st.sampled_from(["", "a", "a\0", "b"]))


@pytest.mark.parametrize("kind", KEYS)
@examples(30)
@given(st.data())
def test_bytes_of_keys_are_in_the_order_of_the_keys(kind: str, data: st.DataObject) -> None:
    encoding = TupleBytes([KEYS[kind][0], pa.string()], zoned_as_local=True)
    keys = data.draw(st.lists(keys_of(kind), max_size=8, unique_by=repr))
    rows = sorted((encoding.encode(key) + b"rest", key) for key in keys)
    assert list(map(repr, in_order(keys))) == [repr(key) for _, key in rows]
    for row, key in rows:
        read, end = encoding.decode(b"head" + row, 4)
        assert repr(read) == repr(key)
        assert row[end - 4 :] == b"rest"
    encoded = [*map(encoding.encode, keys)]
    assert not any(
        longer != shorter and longer.startswith(shorter)
        for shorter in encoded
        for longer in encoded
    )


OF_ARRAYS = {
    "text": (pa.string(), texts),
    "large text": (pa.large_string(), texts),
    "binary": PLAIN["binary"],
    "large binary": (pa.large_binary(), PLAIN["binary"][1]),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "int": PLAIN["int"],
    "long": PLAIN["long"],
    "moment": PLAIN["moment"],
    "zoned moment": (pa.timestamp("us", "America/New_York"), moments),
}


@pytest.mark.parametrize("nulls", [st.nothing(), st.none()], ids=["full", "with nulls"])
@pytest.mark.parametrize("kind", OF_ARRAYS)
@examples(30)
@given(data=st.data())
def test_keys_of_a_file_are_encoded_together_as_they_are_one_by_one(
    kind: str, nulls: st.SearchStrategy[None], data: st.DataObject
) -> None:
    arrow_type, values = OF_ARRAYS[kind]
    types = (arrow_type, pa.int64())
    fields = st.tuples(values | nulls, st.integers(-5, 5) | nulls)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 32_767), fields), max_size=8))
    columns = [
        pa.array([key[place] for _, key in drawn], arrow_type)
        for place, arrow_type in enumerate(types)
    ]
    # A slice keeps the earlier values in its buffers.
    first = data.draw(st.integers(0, len(drawn)))
    stored = StoredKeys(
        KeyColumns(("a", "b"), types, ("", "")),
        [column.slice(first) for column in columns],
        len(drawn) - first,
    )
    key_groups = [key_group for key_group, _ in drawn[first:]]
    of_state = StateDescriptor("n", "value", pa.struct([("n", pa.int64())]), "{}")
    rows = RowKeys(stored.key_columns, of_state)
    assert all(map(can_be_encoded, types))
    encoded = rows.of_keys(stored, key_groups)
    assert encoded == [*map(rows.of_key, stored, key_groups)]
    assert encoded == rows.of_keys(list(stored), key_groups)


def test_keys_of_other_types_are_encoded_one_by_one() -> None:
    columns = KeyColumns(("a",), (pa.float64(),), ("double",))
    stored = StoredKeys(columns, [pa.array([math.nan, -0.0, None])], 3)
    of_state = StateDescriptor("n", "value", pa.struct([("n", pa.int64())]), "{}")
    rows = RowKeys(columns, of_state)
    assert not can_be_encoded(pa.float64())
    assert rows.of_keys(stored, [1, 2, 3]) == [
        rows.of_key((math.nan,), 1),
        rows.of_key((0.0,), 2),
        rows.of_key((None,), 3),
    ]


def test_one_field_needs_no_other() -> None:
    encoding = TupleBytes([pa.int64()], zoned_as_local=True)
    assert encoding.decode(encoding.encode((-5,)), 0) == ((-5,), 9)
    assert TupleBytes([], zoned_as_local=True).decode(b"x", 0) == ((), 0)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@examples(30)
@given(moment=moments)
def test_moments_of_grouping_keys_come_back_in_their_zone(
    zone: str, moment: datetime.datetime
) -> None:
    encoding = TupleBytes([pa.timestamp("us", zone)], zoned_as_local=False)
    aware = moment.replace(tzinfo=datetime.UTC)
    ((read,), _) = encoding.decode(encoding.encode((aware,)), 0)
    (expected,) = pa.array([aware], pa.timestamp("us", zone)).to_pylist()
    assert read == expected
    assert read.tzinfo == expected.tzinfo  # type: ignore[union-attr]


VALUES = KEYS | {
    f"map of {kind}": (
        pa.map_(pa.string(), arrow_type),
        st.dictionaries(texts, st.none() | values, max_size=3),
    )
    for kind, (arrow_type, values) in KEYS.items()
}
VALUES["zoned moment"] = (pa.timestamp("us", "UTC"), moments)
VALUES["float"] = (pa.float32(), st.floats(width=32))
VALUES["nothing"] = (pa.null(), st.none())


@pytest.mark.parametrize("kind", VALUES)
@examples(30)
@given(st.data())
def test_values_come_back_as_they_were_put(kind: str, data: st.DataObject) -> None:
    arrow_type, values = VALUES[kind]
    struct_type = pa.struct([("v", arrow_type), ("n", pa.int64())])
    serializer = StructSerializer(struct_type, "state", PLAIN_FORMS)
    packed = PackedValues(struct_type, PLAIN_FORMS)
    value = serializer.to_state((data.draw(st.none() | values), 1))
    read = packed.unpack(packed.pack(value))
    assert repr(read) == repr(value)
    assert serializer.to_state(read) == read or "nan" in repr(read)
