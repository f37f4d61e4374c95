"""The rows of a task become the rows of a table's file."""

from __future__ import annotations

import datetime
import json
import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.errors import TableSchemaError
from checkpoint_store.files.key_group_range import KeyGroupRange
from checkpoint_store.files.schema_columns import selected
from checkpoint_store.files.state_file import StateFileHeader, encode_state_file
from checkpoint_store.states.row_fold import flat_rows, flat_schema, fold_rules, fold_state
from checkpoint_store.states.state_history import StateShape
from checkpoint_store.tables.table_version import TableMetadata
from datasources.errors import DuplicateKeyError, NullKeyError, NullSequenceError
from datasources.options.table_options import SinkOptions, parse_sink_options
from datasources.sink.table_rows import SinkPlan, check_plan, duplicate_keys, rows_to_write
from spark_state.errors import ConfigurationError, KeyGroupError
from spark_state.key_group_hash import KeyGroupAssignment
from tests.support.tables.table_rows_of import schema_json

Row = dict[str, Any]


COLUMNS = schema_json(id="long", at="integer", name="string", total="double")


def metadata(columns: str, *keys: str, **more: Any) -> TableMetadata:
    fixed = {"max_parallelism": 8, "sequence_by": None, "ignore_null_updates": False} | more
    return TableMetadata("t", selected(columns, keys), **fixed)


def checked(options: SinkOptions, table: TableMetadata, columns: str) -> SinkPlan:
    planned = SinkPlan(options, columns, table)
    check_plan(planned)
    return planned


def plan(columns: str = COLUMNS, keys: tuple[str, ...] = ("id",), **more: Any) -> SinkPlan:
    fixed = {
        name: more.pop(name)
        for name in ("sequence_by", "ignore_null_updates", "max_parallelism")
        if name in more
    }
    return checked(SinkOptions("/t", keys, **more), metadata(columns, *keys, **fixed), columns)


def rows_of(planned: SinkPlan, *rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(planned.schema.names, row, strict=True)) for row in rows], planned.schema
    )


def written(planned: SinkPlan, *rows: tuple[Any, ...]) -> list[Row]:
    table = rows_to_write(rows_of(planned, *rows), planned)
    table.validate(full=True)
    assert table.schema == planned.file_schema
    stored: list[Row] = table.to_pylist()
    groups = [row["_key_group"] for row in stored]
    assert groups == sorted(groups)
    one_by_one = KeyGroupAssignment(planned.key_types, planned.metadata.max_parallelism)
    keys = [tuple(row[name] for name in planned.key_names) for row in stored]
    assert groups == [one_by_one.key_group(key) for key in keys]
    return stored


def test_a_policy_for_duplicates_of_a_table_that_has_a_sequence_is_refused() -> None:
    metadata = TableMetadata("t", schema_json(id="long"), 4, "at", False)
    options = parse_sink_options({"path": "/t", "onDuplicate": "first"})
    told = r"onDuplicate is 'first', but /t was created with sequenceBy 'at'"
    with pytest.raises(ConfigurationError, match=told):
        checked(options, metadata, schema_json(id="long", at="long"))


def test_a_row_becomes_its_key_and_a_struct_of_the_other_columns() -> None:
    (row,) = written(plan(), (1, 10, "Ann", 0.5))
    key_group = KeyGroupAssignment(["long"], 8).key_group((1,))
    values = {"at": 10, "name": "Ann", "total": 0.5}
    assert row == {"id": 1, "_key_group": key_group, "_state": "row", "_op": "put", "row": values}


def test_columns_of_the_file_are_those_of_the_format() -> None:
    planned = plan(
        schema_json(x="string", row="long", row_="integer"), ("row", "row_"), sequence_by="x"
    )
    schema = planned.file_schema
    assert schema.names == ["row", "row_", "_key_group", "_state", "_op", "row__", "_sequence"]
    assert schema.field("row__").metadata == {b"cowstate.state": b"row"}
    assert schema.field("row__").type == pa.struct([("x", pa.string())])
    assert schema.field("_sequence").type == pa.string()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": "string"}, "the rows have no column 'id', a key column of the table; add it"),
        ({"ID": "long", "at": "long"}, "no column 'id', a key column of the table; rename 'ID'"),
        ({"id": "long"}, "the rows have no column 'at', by which the table orders the rows of a"),
    ],
)
def test_rows_without_a_needed_column_are_refused(columns: dict[str, Any], message: str) -> None:
    table = metadata(schema_json(id="long", at="long"), "id", sequence_by="at")
    with pytest.raises(TableSchemaError) as caught:
        checked(SinkOptions("/t", ()), table, schema_json(**columns))
    assert message in str(caught.value)


def test_keys_keep_their_order_of_the_option_and_values_that_of_the_rows() -> None:
    planned = plan(keys=("name", "id"))
    assert planned.file_schema.names[:2] == ["name", "id"]
    assert planned.value_names == ("at", "total")
    assert planned.key_types == ("string", "long")


def test_a_deleted_row_has_no_values_not_even_hidden_ones() -> None:
    planned = plan(delete_when="total < 0", sequence_by="at")
    table = rows_to_write(rows_of(planned, (1, 1, "secret", -1.0)), planned)
    assert table.to_pylist()[0]["_op"] == "delete"
    assert table.to_pylist()[0]["row"] is None
    assert table.to_pylist()[0]["_sequence"] == 1
    hidden = table["row"].combine_chunks().field("name")
    assert hidden.to_pylist() == [None]


def test_a_table_of_keys_only_and_no_rows_can_be_written() -> None:
    only_keys = plan(schema_json(id="long"))
    assert [row["row"] for row in written(only_keys, (1,), (2,))] == [{}, {}]
    for planned in (plan(), only_keys, plan(sequence_by="at", delete_when="at = 1")):
        assert written(planned) == []
    table = rows_to_write(rows_of(only_keys, (1,), (2,)), only_keys)
    header = StateFileHeader("changelog", "t", 0, 0, KeyGroupRange(0, 7))
    read = pa.ipc.open_file(encode_state_file(table, header).data).read_all()
    assert read.select(["id", "row"]).to_pylist() == table.select(["id", "row"]).to_pylist()


def test_rows_as_spark_delivers_them_get_the_types_of_the_file() -> None:
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    zoned = pa.timestamp("us", "America/New_York")
    array = {"type": "array", "elementType": "timestamp", "containsNull": True}
    entries = {
        "type": "map",
        "keyType": "string",
        "valueType": "timestamp",
        "valueContainsNull": True,
    }
    fields = {"type": "struct", "fields": [{"name": "x", "type": "timestamp"}]}
    planned = plan(schema_json(id="timestamp", text="string", l=array, m=entries, s=fields))
    delivered = pa.table(
        {
            "s": pa.array([{"x": moment}], pa.struct([pa.field("x", zoned, nullable=False)])),
            "m": pa.array([{"a": moment}], pa.map_(pa.string(), zoned)),
            "l": pa.array([[moment]], pa.list_(pa.field("element", zoned, nullable=False))),
            "text": pa.array(["a"], pa.large_string()),
            "id": pa.array([moment], zoned),
        }
    )
    table = rows_to_write(delivered, planned)
    assert table.schema == planned.file_schema
    assert table["id"].to_pylist() == [moment]
    assert table["row"].to_pylist() == [
        {"text": "a", "l": [moment], "m": [("a", moment)], "s": {"x": moment}}
    ]


def test_zeros_and_nans_of_keys_are_each_one_key() -> None:
    planned = plan(schema_json(id="double", x="float", n="long"), ("id", "x"), on_duplicate="last")
    stored = written(planned, (0.0, math.nan, 1), (-0.0, -math.nan, 2), (math.nan, -0.0, 3))
    assert sorted(row["row"]["n"] for row in stored) == [2, 3]
    zero = next(row["id"] for row in stored if row["id"] == 0.0)
    assert math.copysign(1, zero) == 1


def test_the_same_key_twice_is_an_error_that_names_a_few() -> None:
    rows = [(key, number, "x", None) for key in (5, 6, 7, 8, 9) for number in (1, 2)]
    with pytest.raises(DuplicateKeyError, match=r"id=5; id=6; id=7, and .* sequenceBy") as caught:
        written(plan(), *rows)
    assert caught.value.keys == ((5,), (6,), (7,))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_null_in_a_key_is_an_error_dropped_or_kept() -> None:
    rows = [(1, 1, "x", None), (None, 1, "x", None), (None, 1, None, None), (2, 1, None, None)]
    by_both = ("id", "name")
    with pytest.raises(NullKeyError, match=r"key column 'id' is null in 2 rows .* onNullKey"):
        written(plan(keys=by_both), *rows)
    dropped = written(plan(keys=by_both, on_null_key="drop"), *rows)
    assert [row["id"] for row in dropped] == [1]
    kept = written(plan(keys=by_both, on_null_key="keep"), *rows)
    keys = {(row["id"], row["name"]) for row in kept}
    assert keys == {(1, "x"), (None, "x"), (None, None), (2, None)}


def test_a_missing_sequence_is_an_error() -> None:
    with pytest.raises(NullSequenceError, match="'at' of option sequenceBy is null or NaN in 1 ro"):
        written(plan(sequence_by="at"), (1, None, "x", None), (2, 1, "x", None))
    with pytest.raises(NullSequenceError, match=r"'total' .* in 2 rows"):
        written(plan(sequence_by="total"), (1, 1, "x", math.nan), (2, 1, "x", None))


@pytest.mark.parametrize("name", ["_key_group", "_STATE", "_op", "_sequence", "_change_type"])
def test_names_that_tables_use_themselves_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"column '{name}' has a name that tables use"):
        plan(schema_json(id="long", **{name: "string"}))
    assert plan(schema_json(id="long", _opened="string")).value_names == ("_opened",)


def test_columns_that_a_table_cannot_have_are_refused() -> None:
    twice = json.loads(COLUMNS)
    twice["fields"].append(twice["fields"][1])
    with pytest.raises(ConfigurationError, match=r"columns 'at' and 'at' have the same name"):
        plan(json.dumps(twice))
    with pytest.raises(ConfigurationError, match=r"columns 'a' and 'A' have the same name"):
        plan(schema_json(id="long", a="long", A="long"))
    with pytest.raises(
        ConfigurationError, match=r"column where has type geometry.* cast the column"
    ):
        plan(schema_json(id="long", where="geometry"))
    struct = {"type": "struct", "fields": [{"name": "x", "type": "long"}]}
    with pytest.raises(ConfigurationError, match=r"sequenceBy names s struct<x: bigint>, which"):
        plan(schema_json(id="long", s=struct), sequence_by="s")
    months = {"type": "array", "elementType": "interval year to month"}
    with pytest.raises(ConfigurationError, match="'m' holds an interval of months or years"):
        plan(schema_json(id="long", m=months))
    with pytest.raises(KeyGroupError, match="'id' is array<bigint>, which has no stable hash"):
        plan(schema_json(id={"type": "array", "elementType": "long"}))
    with pytest.raises(ConfigurationError, match="deleteWhen names 'op'"):
        plan(delete_when="op = 'D'")


def test_duplicates_across_tables_are_found_exactly() -> None:
    def keys(*rows: tuple[Any, ...]) -> pa.Table:
        return pa.table(
            [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows])],
            ["a", "b"],
        )

    assert duplicate_keys([], ["a"]) == []
    assert duplicate_keys([keys((1, "x")), keys((1, "y"), (2, "x"))], ["a", "b"]) == []
    assert duplicate_keys([keys((1, "x")), keys((1, "y"), (2, "x"))], ["a"]) == [(1,)]
    both = [keys((1, "x"), (None, "x")), keys((None, "x"), (1, "x"), (3, "x"))]
    assert duplicate_keys(both, ["a", "b"]) == [(1, "x"), (None, "x")]


KEYS = st.none() | st.integers(0, 3)
INPUT_ROWS = st.lists(
    st.tuples(KEYS, KEYS, st.integers(0, 4), st.none() | st.text("ab", max_size=2), st.booleans()),
    max_size=15,
)
INPUT_COLUMNS = schema_json(a="long", b="short", at="integer", name="string", gone="boolean")


def winners(
    rows: list[tuple[Any, ...]], sequenced: bool, on_duplicate: str
) -> dict[Any, tuple[Any, ...]]:
    winners: dict[Any, tuple[Any, ...]] = {}
    for row in reversed(rows) if on_duplicate == "first" and not sequenced else rows:
        old = winners.get(row[:2])
        if old is None or not sequenced or row[2] >= old[2]:
            winners[row[:2]] = row
    return winners


@given(
    rows=INPUT_ROWS,
    sequenced=st.booleans(),
    on_duplicate=st.sampled_from(["first", "last"]),
    on_null_key=st.sampled_from(["drop", "keep"]),
)
def test_the_winning_row_of_every_key_is_written_once(
    rows: list[tuple[Any, ...]], sequenced: bool, on_duplicate: str, on_null_key: str
) -> None:
    planned = plan(
        INPUT_COLUMNS,
        ("a", "b"),
        sequence_by="at" if sequenced else None,
        on_duplicate=on_duplicate,
        on_null_key=on_null_key,
        delete_when="gone",
    )
    stored = written(planned, *rows)
    kept = [row for row in rows if on_null_key == "keep" or None not in row[:2]]
    expected = winners(kept, sequenced, on_duplicate)
    assert len(stored) == len(expected)
    for row in stored:
        _, _, at, name, gone = expected[row["a"], row["b"]]
        values = {"at": at, "name": name, "gone": gone}
        assert row["row"] == (None if gone else values)
        assert row["_op"] == ("delete" if gone else "put")
        assert row.get("_sequence") == (at if sequenced else None)


@given(rows=INPUT_ROWS, ignores_nulls=st.booleans())
@pytest.mark.long
def test_the_fold_of_a_file_is_the_fold_of_the_rows_in_their_sequence(
    rows: list[tuple[Any, ...]], ignores_nulls: bool
) -> None:
    planned = plan(
        INPUT_COLUMNS,
        ("a", "b"),
        sequence_by="at",
        ignore_null_updates=ignores_nulls,
        on_null_key="keep",
        delete_when="gone",
    )
    shape = StateShape(
        state="row",
        key_schema_json=selected(INPUT_COLUMNS, planned.key_names),
        value_schema_json=selected(INPUT_COLUMNS, planned.value_names),
        columns=tuple(planned.schema.names),
        sequenced=True,
        ignores_nulls=ignores_nulls,
    )
    table = rows_to_write(rows_of(planned, *rows), planned)
    schema = flat_schema(shape)
    folded = fold_state(flat_rows(table, shape, schema), fold_rules(shape, schema))
    expected: dict[Any, list[Any]] = {}
    for a, b, at, name, gone in sorted(rows, key=lambda row: row[2]):
        old = expected.pop((a, b), None)
        if not gone:
            keeps = ignores_nulls and name is None and old is not None
            expected[a, b] = [at, old[1] if keeps and old else name, gone]
    found = [tuple(row.values()) for row in folded.select(planned.schema.names).to_pylist()]
    assert {row[:2]: [*row[2:]] for row in found} == expected
