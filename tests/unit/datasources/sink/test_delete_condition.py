"""Delete conditions agree with SQLite, and unsupported conditions are refused."""

from __future__ import annotations

import datetime
import math
import sqlite3
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasources.sink.delete_condition import compile_delete_condition
from spark_state.errors import ConfigurationError

NOON = datetime.datetime(2026, 1, 31, 12)
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.int64(), 7),
    "small": (pa.int8(), 100),
    "Name": (pa.string(), "Ann\nLee"),
    "price": (pa.decimal128(10, 2), Decimal("9.50")),
    "ratio": (pa.float64(), math.nan),
    "part": (pa.float32(), 0.5),
    "gone": (pa.bool_(), True),
    "day": (pa.date32(), NOON.date()),
    "seen": (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=datetime.UTC)),
    "local": (pa.timestamp("us"), NOON),
    "delete me": (pa.bool_(), True),
    "where": (pa.bool_(), True),
    "tags": (pa.list_(pa.string()), ["a"]),
}
SCHEMA = pa.schema([(name, arrow_type) for name, (arrow_type, _) in COLUMNS.items()])
ROW = {name: value for name, (_, value) in COLUMNS.items()}
NULLS: dict[str, Any] = dict.fromkeys(ROW)


def deleted(text: str, *rows: dict[str, Any]) -> list[bool]:
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    return compile_delete_condition(text, SCHEMA)(table).to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        *("gone", "GONE", "delete me", "where", "`delete me`", "gone = TRUE", "NOT gone <> true"),
        *("id = 7", "id == 7", "ID >= 7", "id < 8 and id > 6", "id <=> 7", "id != 8", "-id = -7"),
        *(
            "id = 7.0",
            "id < 7.5",
            "id < 99999999999999999999",
            "id > -1e30",
            "id + 1 = 2 * (5 - 1)",
        ),
        *("name LIKE 'Ann%'", "Name LIKE 'Ann_Lee'", "name NOT LIKE 'ann%'", "name > 'Ann'"),
        *("name IN ('x', 'Ann\nLee')", "id NOT IN (1, 2)", "id IN (small - 93, NULL)"),
        *("price = 9.5", "price * 2 = 19", "price BETWEEN 9.5 AND 10", "price NOT BETWEEN 1 AND 2"),
        *("ratio = ratio", "ratio > 1e300", "ratio > id", "ratio >= ratio", "NOT ratio < ratio"),
        *("part = 0.5", "part < ratio", "ratio <=> ratio", "NOT part <=> ratio", "ratio > price"),
        *("day = DATE '2026-01-31'", "day > DATE '2025-12-31'", "day < seen"),
        *("seen = TIMESTAMP '2026-01-31 12:00:00'", "seen >= TIMESTAMP '2026-01-31'"),
        *(
            "seen = TIMESTAMP '2026-01-31T13:00:00+01:00'",
            "local = TIMESTAMP_NTZ '2026-01-31 12:00'",
        ),
        *("tags IS NOT NULL", "NULL OR gone", "NOT (NULL AND FALSE)", "true", "id = 7 -- seven"),
        *(r"NOT name LIKE 'Ann\%'", "gone AND ratio IS NOT NULL", "(((id) = 7))"),
    ],
)
def test_a_condition_is_true_for_the_row_and_a_null_deletes_nothing(text: str) -> None:
    constant = text in ("true", "NOT (NULL AND FALSE)")
    assert deleted(text, ROW, NULLS) == [True, constant or text == "ratio <=> ratio"]


@pytest.mark.parametrize("text", ["gone IS NULL", "gone <=> NULL", "NULL <=> id", "name is null"])
def test_null_is_found_where_it_is_asked_for(text: str) -> None:
    assert deleted(text, ROW, NULLS) == [False, True]


@pytest.mark.parametrize("text", ["NULL", "false", "id = NULL", "NULL IN (id)", "NOT NULL"])
def test_what_is_never_true_deletes_nothing(text: str) -> None:
    assert deleted(text, ROW, NULLS) == [False, False]


def test_a_record_batch_and_no_rows_are_taken_too() -> None:
    is_delete = compile_delete_condition("id = 7", SCHEMA)
    assert is_delete(pa.RecordBatch.from_pylist([ROW], SCHEMA)).to_pylist() == [True]
    assert is_delete(SCHEMA.empty_table()).to_pylist() == []


def test_a_thousand_conditions_are_no_deeper_than_one() -> None:
    text = " OR ".join(f"id = {number}" for number in range(1000))
    assert deleted(text, ROW, {**ROW, "id": 1000}) == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "idd = 1",
            r"names 'idd', which is not a column of the rows; did you mean id\? the columns are",
        ),
        ("id", "'id' is bigint, neither true nor false"),
        ("id AND gone", "'id' is bigint, neither true nor false"),
        ("NOT name", "'name' is string, neither true nor false"),
        ("id + 1", r"'id \+ 1' is bigint"),
        (
            "id = 1 AND upper(name) = 'A'",
            r"'UPPER\(name\)' is not allowed here; allowed are columns",
        ),
        ("id / 2 = 1", "'id / 2' is not allowed here"),
        ("id % 2 = 1", "'id % 2' is not allowed here"),
        ("gone IS TRUE", "'gone IS TRUE' is not allowed here"),
        ("id IN (SELECT 1)", r"'id IN \(SELECT 1\)' is not allowed here"),
        ("CASE WHEN gone THEN true END", "is not allowed here"),
        ("CAST(id AS BOOLEAN)", r"'CAST\(id AS BOOLEAN\)' is not allowed here"),
        ("name RLIKE 'a'", "is not allowed here"),
        ("name ILIKE 'a'", "is not allowed here"),
        ("name LIKE name", "'name LIKE name' needs a text as pattern"),
        ("name LIKE 'a!%' ESCAPE '!'", "is not allowed here"),
        ("name = 'it''s'", "is not allowed here"),
        ("address.city = 'x'", r"'address\.city' is not allowed here"),
        ("count(*) > 1", "is not allowed here"),
        ("name = 1", "'name = 1' cannot be computed: Name is string. Values .* of one kind"),
        ("gone = 1", "'gone = 1' cannot be computed: gone is boolean"),
        ("id LIKE '1'", "'id LIKE '1'' cannot be computed|\"id LIKE '1'\" cannot be computed"),
        ("day > '2026-01-31'", "cannot be computed: day is date.* DATE '…'"),
        ("tags = tags", "'tags = tags' cannot be computed: tags is array<string>"),
        ("seen = TIMESTAMP_NTZ '2026-01-31'", "cannot be computed: seen is timestamp\\."),
        ("day = DATE '2026-02-30'", "day is out of range for month"),
        ("local = TIMESTAMP_NTZ '2026-01-31 12:00:00Z'", "is not allowed here"),
        (f"id = {'9' * 90}", "is not a number of 38 digits"),
        (
            "id = ",
            r"'id = ' is not a predicate: it cannot be parsed at '=' \(character 4\); allowed",
        ),
        ("(id = 1", r"is not a predicate: it cannot be parsed at '1' \(character 7\)"),
        ("name = 'x", "is not a predicate: a quote has no end"),
        ("id = 1; gone", "is not one predicate"),
        ("-- nothing", "is not one predicate"),
    ],
)
def test_anything_else_is_refused_and_told_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compile_delete_condition(text, SCHEMA)


def test_columns_that_differ_only_in_case_must_be_spelled() -> None:
    schema = pa.schema([("id", pa.bool_()), ("ID", pa.bool_())])
    rows = pa.table([[True, False], [False, True]], schema=schema)
    assert compile_delete_condition("ID", schema)(rows).to_pylist() == [False, True]


def test_an_overflow_is_an_error_that_names_the_condition() -> None:
    with pytest.raises(ConfigurationError, match=r"'id \* 2 > 0' fails for a row: overflow"):
        deleted("id * 2 > 0", {**ROW, "id": 2**62})


ORACLE_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])
NUMBERS = st.sampled_from(["a", "b", "0", "1", "-2", "3", "NULL", "a + 1", "(b - a)", "b * 2"])
TEXTS = st.sampled_from(["s", "'x'", "'xy'", "''", "NULL"])
PATTERNS = st.sampled_from(["'x%'", "'_y'", "'%'", "''", "'%y%'", "'X'"])


def comparisons() -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
    negation = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds("{} {} {}".format, NUMBERS, operators, NUMBERS),
        st.builds("{} {} {}".format, TEXTS, operators, TEXTS),
        st.builds("{} IS {}NULL".format, NUMBERS, negation),
        st.builds("{} {}IN ({}, {})".format, NUMBERS, negation, NUMBERS, NUMBERS),
        st.builds("{} {}BETWEEN {} AND {}".format, NUMBERS, negation, NUMBERS, NUMBERS),
        st.builds("s {}LIKE {}".format, negation, PATTERNS),
    )


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("{} AND {} OR {}".format, inner, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
ORACLE_ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-2, 3),
        st.none() | st.integers(-2, 3),
        st.none() | st.sampled_from(["", "x", "xy", "X", "y"]),
    ),
    max_size=8,
)


@given(text=CONDITIONS, rows=ORACLE_ROWS)
def test_conditions_are_true_for_the_rows_for_which_sqlite_says_so(
    text: str, rows: list[tuple[Any, ...]]
) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.execute("CREATE TABLE t (a INTEGER, b INTEGER, s TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    query = f"SELECT coalesce({text.replace('<=>', 'IS')}, 0) FROM t ORDER BY rowid"
    expected = [bool(flag) for (flag,) in connection.execute(query)]
    table = pa.Table.from_pylist(
        [dict(zip(ORACLE_SCHEMA.names, row, strict=True)) for row in rows], ORACLE_SCHEMA
    )
    assert compile_delete_condition(text, ORACLE_SCHEMA)(table).to_pylist() == expected
