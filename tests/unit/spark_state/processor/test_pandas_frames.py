"""A processor gets and emits pandas DataFrames as in Spark, and only used frames cost time."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from spark_state.errors import OutputRowError, UnsupportedOperationError
from spark_state.processor.blocks import BlockSize
from spark_state.processor.input.key_grouping import KeyedInput
from spark_state.processor.pandas_frames import PandasFrames

NO_BOUND = 2**31 - 1
BIG = 2**53 + 1
"""No float is this whole number."""
PANDAS_3 = int(pd.__version__.split(".")[0]) >= 3
TEXT = "str" if PANDAS_3 else "object"
FORM = PandasFrames("America/New_York", BlockSize(10_000, NO_BOUND))
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 123456)
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int32())])


def keyed(columns: dict[str, pa.Array[Any]], counts: list[int]) -> KeyedInput:
    """Make rows of keys 0, 1, …; `counts`: rows of each key."""
    keys = [(number,) for number in range(len(counts))]
    return KeyedInput(pa.table(columns), keys, [0] * len(counts), counts)


def frames(form: PandasFrames, rows: KeyedInput) -> list[list[pd.DataFrame]]:
    """Return the frames of each key."""
    return [list(each) for each in form.rows_by_key(rows, tuple(rows.rows.column_names))]


def values(count: int) -> dict[str, pa.Array[Any]]:
    return {"v": pa.array(range(count))}


class TestInput:
    def test_each_key_gets_its_rows_with_an_index_from_zero(self) -> None:
        columns = {"key": pa.array(["a", "a", "b"]), "v": pa.array([1, 2, 3])}
        (first,), (second,) = frames(FORM, keyed(columns, [2, 1]))
        pd.testing.assert_frame_equal(first, pd.DataFrame({"key": ["a", "a"], "v": [1, 2]}))
        pd.testing.assert_frame_equal(second, pd.DataFrame({"key": ["b"], "v": [3]}))

    @pytest.mark.parametrize(
        ("value", "value_type", "dtype", "expected"),
        [
            (3, pa.int32(), "int64", 3),
            (4, pa.int64(), "int64", 4),
            (1.5, pa.float32(), "float64", 1.5),
            (2.5, pa.float64(), "float64", 2.5),
            (True, pa.bool_(), "bool", True),
            ("x", pa.string(), TEXT, "x"),
            (b"x", pa.binary(), "object", b"x"),
            (datetime.date(2024, 1, 2), pa.date32(), "object", datetime.date(2024, 1, 2)),
            (Decimal("1.50"), pa.decimal128(10, 2), "object", Decimal("1.50")),
            (MOMENT, pa.timestamp("us"), "datetime64[ns]", pd.Timestamp(MOMENT)),
            (
                MOMENT.replace(tzinfo=datetime.UTC),
                pa.timestamp("us", "UTC"),
                "datetime64[ns]",
                pd.Timestamp(MOMENT) - pd.Timedelta(hours=5),
            ),
            ({"x": 1}, pa.struct([("x", pa.int32())]), "object", {"x": 1}),
            ([("a", 1)], pa.map_(pa.string(), pa.int32()), "object", {"a": 1}),
        ],
    )
    def test_a_column_has_the_dtype_of_spark(
        self, value: Any, value_type: pa.DataType, dtype: str, expected: Any
    ) -> None:
        ((frame,),) = frames(FORM, keyed({"v": pa.array([value], value_type)}, [1]))
        assert str(frame["v"].dtype) == dtype
        assert frame["v"].tolist() == [expected]

    def test_a_list_is_an_array(self) -> None:
        ((frame,),) = frames(FORM, keyed({"v": pa.array([[1, 2]], pa.list_(pa.int32()))}, [1]))
        (items,) = frame["v"]
        assert isinstance(items, np.ndarray)
        assert items.tolist() == [1, 2]

    def test_whole_numbers_beside_nulls_are_floats_in_all_keys_of_the_block(self) -> None:
        (first,), (second,) = frames(FORM, keyed({"v": pa.array([3, None])}, [1, 1]))
        assert first["v"].tolist() == [3.0]
        assert second["v"].isna().tolist() == [True]

    @pytest.mark.parametrize(
        ("value_type", "value", "null"),
        [
            (pa.struct([("id", pa.int64())]), {"id": BIG}, {"id": None}),
            (pa.map_(pa.string(), pa.int64()), {"n": BIG}, {"n": None}),
            (pa.list_(pa.int64()), [BIG], [None]),
            (pa.list_(pa.struct([("id", pa.int64())])), [{"id": BIG}], [{"id": None}]),
            (pa.struct([("ids", pa.map_(pa.int64(), pa.int64()))]), {"ids": {BIG: 1}}, {"ids": {}}),
        ],
    )
    def test_whole_numbers_in_nested_columns_stay_whole_beside_nulls(
        self, value_type: pa.DataType, value: Any, null: Any
    ) -> None:
        rows = keyed({"v": pa.array([value, null], value_type)}, [1, 1])
        seen = [frame["v"].iloc[0] for (frame,) in frames(FORM, rows)]
        assert [list(each) if isinstance(each, np.ndarray) else each for each in seen] == [
            value,
            null,
        ]
        schema = pa.schema([("v", value_type)])
        output = FORM.output_of_key((), (f for (f,) in FORM.rows_by_key(rows, ("v",))))
        (batch,) = FORM.batches(output, schema)
        assert batch.column("v").equals(rows.rows.column("v").combine_chunks())

    def test_intervals_have_the_unit_of_spark_and_never_wrap_round(self) -> None:
        interval = pa.duration("us")
        within, beyond = datetime.timedelta(5), datetime.timedelta(110_000)
        ((frame,),) = frames(FORM, keyed({"v": pa.array([within, None], interval)}, [2]))
        assert str(frame["v"].dtype) == f"timedelta64[{'us' if PANDAS_3 else 'ns'}]"
        assert frame["v"].iloc[0].to_pytimedelta() == within
        rows = keyed({"v": pa.array([beyond], interval)}, [1])
        if PANDAS_3:
            assert frames(FORM, rows)[0][0]["v"].iloc[0].to_pytimedelta() == beyond
        else:
            with pytest.raises(UnsupportedOperationError, match=r"column 'v' .*Cast the column"):
                frames(FORM, rows)

    def test_a_key_with_more_rows_than_a_frame_holds_gets_several(self) -> None:
        form = PandasFrames("UTC", BlockSize(2, NO_BOUND))
        many, few = frames(form, keyed(values(6), [5, 1]))
        assert [frame["v"].tolist() for frame in many] == [[0, 1], [2, 3], [4]]
        assert [frame.index.tolist() for frame in many] == [[0, 1], [0, 1], [0]]
        assert [frame["v"].tolist() for frame in few] == [[5]]

    def test_bytes_bound_a_frame_too_but_a_row_fits_always(self) -> None:
        (chunks,) = frames(PandasFrames("UTC", BlockSize(100, 24)), keyed(values(7), [7]))
        assert [len(frame) for frame in chunks] == [3, 3, 1]
        (rows,) = frames(PandasFrames("UTC", BlockSize(100, 1)), keyed(values(2), [2]))
        assert [len(frame) for frame in rows] == [1, 1]

    def test_columns_keep_their_names_also_when_two_have_the_same(self) -> None:
        rows = keyed({"0": pa.array([1]), "1": pa.array(["x"])}, [1])
        (((frame),),) = map(list, FORM.rows_by_key(rows, ("a b", "a b")))
        assert frame.columns.tolist() == ["a b", "a b"]
        assert frame.iloc[0].tolist() == [1, "x"]

    def test_what_a_processor_writes_into_its_rows_no_other_key_sees(self) -> None:
        rows = FORM.rows_by_key(keyed(values(4), [2, 2]), ("v",))
        first = next(next(rows))
        first.loc[:, "v"] = -1
        first.iloc[0, 0] = -2
        if not PANDAS_3:  # pandas 3 makes the array read-only
            first["v"].to_numpy()[:] = -3
        assert next(next(rows))["v"].tolist() == [2, 3]

    def test_small_keys_share_one_conversion(self) -> None:
        form = PandasFrames("UTC", BlockSize(4, NO_BOUND))
        made = conversions(form, keyed(values(12), [1] * 12), looked_at=range(12))
        assert made == 3

    def test_a_processor_that_does_not_look_costs_no_frame(self) -> None:
        form = PandasFrames("UTC", BlockSize(4, NO_BOUND))
        assert conversions(form, keyed(values(13), [1] * 8 + [5]), looked_at=[]) == 0
        assert conversions(form, keyed(values(12), [1] * 12), looked_at=[5, 6]) == 1


def conversions(form: PandasFrames, rows: KeyedInput, looked_at: Any) -> int:
    """Return the number of converted frames if only the keys `looked_at` are read."""
    with mock.patch.object(PandasFrames, "_frame", autospec=True, side_effect=_FRAME) as made:
        for number, each in enumerate(form.rows_by_key(rows, ("v",))):
            if number in looked_at:
                list(each)
    return made.call_count


_FRAME = PandasFrames._frame


def emitted(*output: Any, schema: pa.Schema = OUTPUT, form: PandasFrames = FORM) -> list[Any]:
    """Return the output rows if keys 0, 1, … emit one frame each."""
    keyed_output: Iterator[Any] = (
        item
        for number, frame in enumerate(output)
        for item in form.output_of_key((number,), iter([frame]))
    )
    return [
        tuple(row.values()) for b in form.batches(keyed_output, schema) for row in b.to_pylist()
    ]


class TestOutput:
    def test_columns_are_matched_by_name_and_others_left_out(self) -> None:
        assert emitted(pd.DataFrame({"n": [1], "z": [0], "k": ["x"]})) == [("x", 1)]

    def test_columns_without_names_are_matched_by_position(self) -> None:
        assert emitted(pd.DataFrame([["x", 1]]), pd.DataFrame([["y", 2, 3]])) == [
            ("x", 1),
            ("y", 2),
        ]

    def test_legacy_configuration_matches_names_by_position(self) -> None:
        form = PandasFrames("UTC", BlockSize(10, NO_BOUND), by_name=False)
        assert emitted(pd.DataFrame({"n": ["x"], "k": [1]}), form=form) == [("x", 1)]

    def test_rows_of_all_frames_stay_in_order_also_when_dtypes_change(self) -> None:
        columns: list[list[Any]] = [[1], [2.0, float("nan")], [3], [4], ["5"]]
        output = [pd.DataFrame({"k": "x", "n": numbers}) for numbers in columns]
        assert [n for _, n in emitted(*output)] == [1, 2, None, 3, 4, 5]

    def test_a_frame_may_be_changed_and_emitted_again(self) -> None:
        moments = pa.schema([("n", pa.int64()), ("k", pa.string()), ("at", pa.timestamp("us"))])
        frame = pd.DataFrame({"n": [0], "k": pd.array([""], "string"), "at": [MOMENT]})

        def rows() -> Iterator[Any]:
            for number in range(3):
                later = MOMENT + datetime.timedelta(days=number)
                frame.loc[0, :] = [number, str(number), later]  # type: ignore[assignment]
                yield frame

        (batch,) = FORM.batches(FORM.output_of_key((1,), rows()), moments)
        assert batch.column("n").to_pylist() == [0, 1, 2]
        assert batch.column("k").to_pylist() == ["0", "1", "2"]
        assert [at.day for at in batch.column("at").to_pylist()] == [2, 3, 4]

    def test_nothing_comes_of_frames_without_rows(self) -> None:
        assert emitted(pd.DataFrame(), pd.DataFrame({"k": [], "n": []})) == []

    def test_more_rows_than_a_batch_holds_come_in_several(self) -> None:
        frame = pd.DataFrame({"k": ["x"] * 5_000, "n": range(5_000)})
        output = FORM.output_of_key((1,), iter([frame] * 3))
        assert [batch.num_rows for batch in FORM.batches(output, OUTPUT)] == [10_000, 5_000]

    @pytest.mark.parametrize(
        ("column", "value_type", "expected"),
        [
            (pd.Series([MOMENT]), pa.timestamp("us", "UTC"), MOMENT + datetime.timedelta(hours=5)),
            (pd.Series([MOMENT]).dt.tz_localize("UTC"), pa.timestamp("us", "UTC"), MOMENT),
            (pd.Series([MOMENT]), pa.timestamp("us"), MOMENT),
            (pd.Series([{"x": 1}]), pa.struct([("x", pa.int32())]), {"x": 1}),
            (pd.Series([[1, 2]]), pa.list_(pa.int32()), [1, 2]),
            (pd.Series([{"a": 1}]), pa.map_(pa.string(), pa.int32()), [("a", 1)]),
            (pd.Series(["x"], dtype="category"), pa.string(), "x"),
            (pd.Series([1], dtype="Int64"), pa.int32(), 1),
            (pd.Series(["x"], dtype="string[pyarrow]"), pa.string(), "x"),
            (pd.Series([1], dtype="int64[pyarrow]"), pa.int32(), 1),
            (pd.Series([Decimal("1.5")]), pa.decimal128(10, 2), Decimal("1.50")),
            (pd.Series([None]), pa.string(), None),
        ],
    )
    def test_values_become_those_of_the_schema(
        self, column: pd.Series[Any], value_type: pa.DataType, expected: Any
    ) -> None:
        schema = pa.schema([("v", value_type)])
        frame = pd.DataFrame({"v": column})
        got = [value for (value,) in emitted(frame, frame, schema=schema)]
        naive = [g.replace(tzinfo=None) if isinstance(g, datetime.datetime) else g for g in got]
        assert naive == [expected, expected]

    @pytest.mark.parametrize(
        ("frame", "message"),
        [
            (pd.DataFrame({"k": ["x"]}), r"key \(1,\) has the columns \['k'\].*once: n"),
            (pd.DataFrame([["x", 1, 2]], columns=["k", "n", "n"]), "must be there, once: n"),
            (pd.DataFrame([["x"]]), r"key \(1,\) has the columns \[0\].*once: n"),
            (
                pd.DataFrame({"k": ["x"], "n": ["many"]}),
                r"^Failed to convert the value of the column 'n' with type '(object|str)' to Arrow "
                r"type 'int32'\. Output of key \(1,\): .*many",
            ),
            (pd.DataFrame({"k": ["x"], "n": [1.7]}), r"'n' with type 'float64' .*key \(1,\)"),
            (pd.DataFrame({"k": ["x"], "n": [2**40]}), r"'n' with type 'int64' .*key \(1,\)"),
            ({"k": ["x"]}, r"yields pandas.DataFrames, got .* of type dict for key \(1,\)"),
        ],
    )
    def test_what_does_not_fit_is_named_with_its_key(self, frame: Any, message: str) -> None:
        good = pd.DataFrame({"k": ["x"], "n": [1]})
        with pytest.raises(OutputRowError, match=message):
            emitted(good, frame, good)

    @pytest.mark.parametrize(
        ("values", "value_type"),
        [
            ([12345], pa.decimal128(10, 2)),
            (["x"], pa.decimal128(10, 2)),
            ([[1]], pa.decimal128(10, 2)),
            ([1.5], pa.int64()),
        ],
    )
    def test_an_error_has_the_class_and_the_words_of_spark(
        self, values: list[Any], value_type: pa.DataType
    ) -> None:
        frame = pd.DataFrame({"v": values})
        schema = StructType([StructField("v", from_arrow_type(value_type))])
        with pytest.raises(PySparkException) as sparks:
            PandasToArrowConversion.convert(frame, schema, timezone="UTC", arrow_cast=True)
        with pytest.raises(OutputRowError) as caught:
            emitted(frame, schema=pa.schema([("v", value_type)]))
        for each in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert isinstance(each, type(sparks.value))
            assert str(sparks.value).startswith(str(each).partition(" Output of key")[0])

    def test_a_value_does_not_depend_on_those_of_other_frames(self) -> None:
        schema = pa.schema([("v", pa.float32())])
        alone = [pd.DataFrame({"v": [Decimal(text)]}) for text in ("1.005", "649954526457", "1E+3")]
        separate = [row for frame in alone for row in emitted(frame, schema=schema)]
        assert emitted(*alone, schema=schema) == separate


def test_it_pickles() -> None:
    assert pickle.loads(pickle.dumps(FORM)) == FORM
