"""Rows of state convert to Arrow and back, and rows that do not match the schema are refused."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from spark_state.errors import StateValueError
from spark_state.processor.rows import STATE_FORMS
from spark_state.serializers import StructSerializer


def serializer_of(*types: pa.DataType) -> StructSerializer:
    fields = [pa.field(f"f{index}", value_type) for index, value_type in enumerate(types)]
    return StructSerializer(pa.struct(fields), "state 's'", STATE_FORMS)


def test_types_that_passed_once_still_refuse_other_types() -> None:
    serializer = serializer_of(pa.int64(), pa.string())
    assert serializer.to_state((1, "a")) == (1, "a")
    with pytest.raises(StateValueError, match="field 'f1'"):
        serializer.to_state((1, 2.5))


@pytest.mark.parametrize(
    ("value_type", "fits", "beyond", "told"),
    [
        (pa.int64(), 1, 1 << 63, "int64, got 9223372036854775808"),
        (
            pa.duration("us"),
            datetime.timedelta(1),
            datetime.timedelta.max,
            r"duration\[us\], got d",
        ),
    ],
)
def test_a_value_beyond_64_bits_is_refused_even_on_the_fast_path(
    value_type: pa.DataType, fits: Any, beyond: Any, told: str
) -> None:
    serializer = serializer_of(value_type)
    serializer.to_state((fits,))
    state = serializer.to_state((beyond,))
    with pytest.raises(StateValueError, match=f"field 'f0' expects {told}"):
        serializer.to_arrow([(fits,), state])


@pytest.mark.parametrize("value", [5, "ab", None, {"f0": 1}, {1}])
def test_a_value_that_is_no_tuple_is_refused_with_a_hint(value: Any) -> None:
    with pytest.raises(StateValueError, match=r"is not a tuple of 1 fields .* written \(x,\)"):
        serializer_of(pa.int64()).to_state(value)


def test_a_text_of_one_character_stands_for_a_tuple_of_one_field_and_no_other_text_does() -> None:
    text_alone, texts = serializer_of(pa.string()), serializer_of(pa.string(), pa.string())
    assert text_alone.to_state("a") == ("a",)
    for serializer, text in ((text_alone, ""), (text_alone, "ab"), (texts, "ab"), (texts, "a")):
        with pytest.raises(StateValueError, match="is not a tuple of"):
            serializer.to_state(text)
    with pytest.raises(StateValueError, match="field 'f0' expects int64"):
        serializer_of(pa.int64()).to_arrow([serializer_of(pa.int64()).to_state("1")])


def test_a_value_of_the_wrong_length_is_refused_with_the_schema() -> None:
    with pytest.raises(StateValueError, match="has 2 fields, the schema has 1: f0 int64"):
        serializer_of(pa.int64()).to_state((1, 2))


def test_null_in_a_required_field_is_refused() -> None:
    struct_type = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(StateValueError, match="field 'x' must not be null"):
        StructSerializer(struct_type, "state 's'").to_state((None,))
    with pytest.raises(StateValueError, match="field 'x' must not be null"):
        StructSerializer(struct_type, "state 's'").to_state((float("nan"),))


def test_a_put_list_is_not_shared_with_the_caller() -> None:
    serializer = serializer_of(pa.list_(pa.int64()))
    mine = [1]
    state = serializer.to_state((mine,))
    mine.append(2)
    assert state == ([1],)
    copied = serializer.copy(state)
    copied[0].append(3)
    assert state == ([1],)


def test_immutable_values_are_not_copied() -> None:
    serializer = serializer_of(pa.int64(), pa.string())
    state = serializer.to_state((1, "a"))
    assert serializer.copy(state) is state


def test_deletions_are_nulls_in_arrow() -> None:
    serializer = serializer_of(pa.int64())
    array = serializer.to_arrow([(1,), None, (None,)])
    assert array.to_pylist() == [{"f0": 1}, None, {"f0": None}]
    assert serializer.from_arrow(array) == [(1,), None, (None,)]


def test_a_type_that_cannot_be_state_is_refused() -> None:
    with pytest.raises(StateValueError, match="cannot be kept as state"):
        serializer_of(pa.month_day_nano_interval())
