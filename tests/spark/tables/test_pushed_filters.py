"""The option pushFilters changes no result for random keys and literals of each type.

Keys and literals of a type come from one pool. The pool has values that Spark and PySpark change on
the way to a source. The test prints its seed; TEST_SEED repeats a run.
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from checkpoint_store.tables.table_store import TableCommit, TableFileWriter
from datasources.sink.opened_tables import open_table, plan_of_sink
from datasources.sink.table_rows import rows_to_write
from tests.support.drawn_seeds import drawn, seeds
from tests.support.provider.provider_jobs import configured
from tests.support.tables.table_jobs import read

KEYS, FILTERS = 24, 2
Literal = Callable[[random.Random], str]


def whole_number(bits: int, spark_type: str) -> Literal:
    """Build literals of an integral type, often near an end or zero."""
    end = 1 << (bits - 1)

    def literal(chance: random.Random) -> str:
        number = chance.choice(
            [-end, end - 1, 0, chance.randint(-3, 3), chance.randrange(-end, end)]
        )
        return f"cast('{number}' as {spark_type})"

    return literal


def floating(suffix: str) -> Literal:
    """Build literals of a floating-point type, often special values."""

    def literal(chance: random.Random) -> str:
        special = chance.choice(["NaN", "Infinity", "-Infinity", "0.0", "-0.0", "0.1", "16777217"])
        number = chance.choice([special, repr(chance.uniform(-5, 5))])
        return f"cast('{number}' as {suffix})"

    return literal


def decimal(precision: int, scale: int) -> Literal:
    """Build decimals with any number of digits, often with equal first 28 digits."""

    def literal(chance: random.Random) -> str:
        digits = chance.choice([1, precision // 2, precision])
        unscaled = chance.choice(
            [10**digits - 1 - chance.randrange(3), chance.randrange(10**digits)]
        )
        text = str(unscaled).rjust(scale + 1, "0")
        sign, point = chance.choice(["", "-"]), "." if scale else ""
        whole, fraction = text[: len(text) - scale], text[len(text) - scale :]
        return f"cast('{sign}{whole}{point}{fraction}' as decimal({precision},{scale}))"

    return literal


def day(chance: random.Random) -> str:
    """Draw a day, often near the days that differ in Julian calendars."""
    special = [f"1582-10-{chance.randint(3, 17):02}", "2011-12-30", "2011-12-31", "0001-01-02"]
    year, month = chance.randint(1000, 9998), chance.randint(1, 12)
    return f"date'{chance.choice([*special, f'{year:04}-{month:02}-{chance.randint(1, 28):02}'])}'"


def moment(spark_type: str) -> Literal:
    """Build literals of a time on some day, to the microsecond."""

    def literal(chance: random.Random) -> str:
        time = f"{chance.randrange(24):02}:30:00.{chance.randrange(10**6):06}"
        return f"{spark_type}{day(chance)[4:-1]} {time}'"

    return literal


def text(chance: random.Random) -> str:
    """Draw a text, sometimes with bytes outside UTF-8."""
    letters = "".join(chance.choices(string.ascii_letters + "é中\U0001f600", k=chance.randrange(3)))
    broken = f"cast(unhex('{chance.choice(['61FE', '61FF', 'EFBFBD', 'EDA080'])}') as string)"
    return chance.choice([f"'{letters}'", f"'{letters}'", broken])


def binary(chance: random.Random) -> str:
    return f"X'{chance.randbytes(chance.randrange(3)).hex()}'"


LITERALS: dict[str, Literal] = {
    "boolean": lambda chance: chance.choice(["true", "false"]),
    "tinyint": whole_number(8, "tinyint"),
    "smallint": whole_number(16, "smallint"),
    "int": whole_number(32, "int"),
    "bigint": whole_number(64, "bigint"),
    "float": floating("float"),
    "double": floating("double"),
    "decimal(5,2)": decimal(5, 2),
    "decimal(18,0)": decimal(18, 0),
    "decimal(28,4)": decimal(28, 4),
    "decimal(38,18)": decimal(38, 18),
    "date": day,
    "timestamp": moment("timestamp"),
    "timestamp_ntz": moment("timestamp_ntz"),
    "string": text,
    "binary": binary,
    "interval": lambda chance: (
        f"interval '{chance.randrange(9)} {chance.randrange(24)}' day to hour"
    ),
}


def condition(chance: random.Random, literal: Literal) -> str:
    """Draw a filter on column `k` that Spark may pass to a source."""
    a, b = literal(chance), literal(chance)
    listed = ", ".join(literal(chance) for _ in range(chance.randint(1, 4)))
    return chance.choice(
        [
            f"k = {a}",
            f"k = {a}",
            f"k <=> {a}",
            f"k < {a}",
            f"k <= {a}",
            f"k > {a}",
            f"k >= {a}",
            f"k in ({listed})",
            f"k in ({listed}, {a}) and k in ({b}, {a})",
            f"k between {a} and {b}",
            f"k >= {a} and k < {b}",
        ]
    )


def random_keys(spark: SparkSession, chance: random.Random) -> DataFrame:
    """A column of keys for each type, named as in LITERALS."""
    rows = [f"({', '.join(literal(chance) for literal in LITERALS.values())})" for _ in range(KEYS)]
    names = ", ".join(f"`{name}`" for name in LITERALS)
    return spark.sql(f"select * from values {', '.join(rows)} as t({names})")


def write_table(keys: pa.Table, schema: StructType, url: str) -> None:
    """Write a table with the keys, the lesser half in one file and the greater half in another."""
    options = {"path": url, "keys": "k", "maxParallelism": "64", "onDuplicate": "last"}
    plan = plan_of_sink(options, schema)
    table = open_table(plan)
    ordered = rows_to_write(keys, plan).sort_by("k")
    half = ordered.num_rows // 2
    files = [
        table.write_rows(
            "changelog", part.sort_by("_key_group"), TableFileWriter("job", 0, subtask, 0)
        )
        for subtask, part in enumerate([ordered.slice(0, half), ordered.slice(half)])
    ]
    table.commit(TableCommit("job", None, 0, plan.schema_json, tuple(files)))


def rows_by_condition(spark: SparkSession, url: str, conditions: list[str]) -> list[Counter[int]]:
    """Hashes of the keys that a query finds with each condition, when all filters are pushed."""
    with configured(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        frames = [
            read(spark, url, pushFilters=True)
            .where(asked)
            .select(F.lit(number).alias("number"), F.xxhash64("k").alias("hash"))
            for number, asked in enumerate(conditions)
        ]
        rows = reduce(DataFrame.union, frames).collect()
    return [
        Counter(row.hash for row in rows if row.number == number)
        for number in range(len(conditions))
    ]


@pytest.mark.parametrize("seed", seeds(soaks=30))
def test_filters_that_are_pushed_lose_no_row(
    spark: SparkSession, tmp_path: Path, seed: int | None
) -> None:
    chance = random.Random(drawn(seed))
    keys = random_keys(spark, chance)
    columns = keys.toArrow()
    for name, literal in LITERALS.items():
        url = str(tmp_path / name)
        key_field = StructField("k", keys.schema[name].dataType)
        write_table(pa.table({"k": columns[name]}), StructType([key_field]), url)
        conditions = [condition(chance, literal) for _ in range(FILTERS)]
        expected = (
            read(spark, url)
            .select(*(F.collect_list(F.when(F.expr(c), F.xxhash64("k"))) for c in conditions))
            .first()
        )
        pushed = dict(zip(conditions, rows_by_condition(spark, url, conditions), strict=True))
        assert pushed == dict(zip(conditions, map(Counter, expected or ()), strict=True)), name
