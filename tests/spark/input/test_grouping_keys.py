"""An operator's keys equal the keys of Spark's aggregation for any arguments of `groupBy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, GroupedData, Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from spark_state.spark.input.keyed_input import KEY_GROUP_COLUMN, keyed_input
from tests.support.processors.processors import Processor

pytestmark = pytest.mark.spark

Group = Callable[[DataFrame], GroupedData]


class Describe(Processor):
    """A processor that emits the key, the number of its rows, and a row as text."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = sorted(rows, key=repr)
        names = ", ".join(seen[0].__fields__)
        yield Row(key=repr(tuple(key)), rows=len(seen), names=names, first=repr(tuple(seen[0])))


def described(grouped: Any) -> list[Row]:
    output = spark_state.transform_with_state(
        grouped, Describe(), "key string, rows int, names string, first string", "update", "None"
    )
    return sorted(output.collect())


@pytest.fixture
def words(spark: SparkSession) -> DataFrame:
    rows = [("a", 1), ("A", 2), ("b", 3), ("A", 4), (None, 5)]
    return spark.createDataFrame(rows, "word string, n bigint")


GROUPS: dict[str, tuple[Group, str]] = {
    "a name": (lambda df: df.groupBy("word"), "word, n"),
    "a name of another case": (lambda df: df.groupBy("WORD"), "word, n"),
    "a name with its table": (lambda df: df.alias("t").groupBy("t.word"), "word, n"),
    "a column": (lambda df: df.groupBy(df.word), "word, n"),
    "a place": (lambda df: df.groupBy(1), "word, n"),
    "its own name": (lambda df: df.groupBy(F.col("word").alias("word")), "word, n"),
    "another name": (lambda df: df.groupBy(F.col("word").alias("w")), "w, word, n"),
    "an expression": (lambda df: df.groupBy(F.upper("word")), "upper(word), word, n"),
    "an expression under the name of its column": (
        lambda df: df.groupBy(F.upper("word").alias("word")),
        "word, word, n",
    ),
    "an expression under a name that differs in case": (
        lambda df: df.groupBy(F.upper("word").alias("WORD")),
        "WORD, word, n",
    ),
    "an expression under the name of another column": (
        lambda df: df.groupBy(F.upper("word").alias("n"), "word"),
        "n, word, n",
    ),
    "columns that have one name": (
        lambda df: df.select("word", "n", (F.col("n") + 1).alias("n")).groupBy("word"),
        "word, n, n",
    ),
    "a column of a join": (
        lambda df: df.alias("l").join(df.alias("r"), F.expr("l.n = r.n")).groupBy(F.col("r.word")),
        "word, n, word, n",
    ),
    "nothing": (lambda df: df.groupBy(), "word, n"),
}


@pytest.mark.parametrize("name", GROUPS)
def test_keys_and_rows_are_those_of_an_aggregation(words: DataFrame, name: str) -> None:
    group, names = GROUPS[name]
    counted = group(words).agg(F.count("*").alias("counted")).collect()
    expected = sorted((repr(tuple(row)[:-1]), row.counted) for row in counted)
    groups = described(group(words))
    assert [(row.key, row.rows) for row in groups] == expected
    assert {row.names for row in groups} == {names}


def test_the_computed_key_comes_first_and_the_column_keeps_its_value(words: DataFrame) -> None:
    groups = described(words.where("n = 1").groupBy(F.upper("word").alias("word")))
    assert [(row.key, row.first) for row in groups] == [("('A',)", "('A', 'a', 1)")]


def test_a_column_that_is_not_there_is_spark_s_error(words: DataFrame) -> None:
    with pytest.raises(AnalysisException, match=r"`id` cannot be resolved.*`word`"):
        described(words.groupBy("id"))


@pytest.mark.parametrize("name", ["uuid()", "rand()", "cast(rand() * 50 as int)"])
def test_a_key_that_is_computed_anew_each_time_is_computed_once(
    spark: SparkSession, name: str
) -> None:
    """Rows of a key meet in one subtask, even if a second evaluation would give another key."""
    df = spark.range(400).repartition(3)
    frame, _, (key,) = keyed_input(df.groupBy(F.expr(name).alias("k")), 128)
    rows = frame.select("k", KEY_GROUP_COLUMN, F.pmod(F.xxhash64("k"), F.lit(128)).alias("own"))
    collected = rows.collect()
    assert len(collected) == 400
    assert [row for row in collected if row[KEY_GROUP_COLUMN] != row.own] == []
    assert key.name == "k"
