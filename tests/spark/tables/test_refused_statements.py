"""Unsupported statements on tables of Spark's catalog are refused before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.tables.table_jobs import in_order, write

pytestmark = pytest.mark.spark
COLUMNS = "id BIGINT, v STRING"
TABLES = ("known", "fresh", "stranger")
ROWS = {"known": [(1, "a"), (2, "c")], "fresh": [], "stranger": [(7,)]}
REPLACED = "default.known exists, and to replace it Spark would drop it first, with the rows"
REFUSED = [
    ("CREATE TABLE other (id BIGINT, w INT) USING cowstate LOCATION '{path}'", "schema"),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate PARTITIONED BY (v) OPTIONS (keys 'id')",
        "no partitions and no",
    ),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate CLUSTER BY (v) OPTIONS (keys 'id')",
        "no partitions and no",
    ),
    (
        "CREATE TABLE p (id BIGINT, v STRING DEFAULT 'x') USING cowstate OPTIONS (keys 'id')",
        "column v has a DEFAULT",
    ),
    ("CREATE TABLE p USING cowstate LOCATION '{path}/none'", "neither a table, nor the store"),
    ("DELETE FROM known WHERE id = 1", "write the keys to delete with option deleteWhen"),
    ("UPDATE known SET v = 'z'", "INSERT INTO replaces the rows of the same keys"),
    (
        "MERGE INTO known t USING known s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
        "INSERT INTO replaces the rows of the same keys",
    ),
    ("INSERT OVERWRITE known VALUES (5, 'x')", r'mode\("overwrite"\) and INSERT OVERWRITE'),
    ("SELECT * FROM known VERSION AS OF 0", "Time travel on the relation"),
    ("TRUNCATE TABLE known", "does not support truncates"),
    (f"CREATE TABLE p ({COLUMNS}) USING cowstate", r"keys is not set: .*OPTIONS \(keys 'id'\)"),
    ("CREATE TABLE p USING cowstate AS SELECT 1 AS id", "option keys is not set"),
    (f"CREATE TABLE p ({COLUMNS}) USING cowstate OPTIONS (keys 'no')", "'no', which is not a col"),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate OPTIONS (keys 'id', deleteWhen 'no')",
        "deleteWhen",
    ),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate TBLPROPERTIES (keys 'id')",
        "TBLPROPERTIES has keys, which is an option: set it in OPTIONS",
    ),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate OPTIONS (keys 'v') LOCATION '{{path}}'",
        "keys",
    ),
    ("CREATE TABLE p (_change_type INT, v INT) USING cowstate OPTIONS (keys 'v')", "_change_type"),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate OPTIONS (keys 'v') DEFAULT COLLATION "
        "UTF8_LCASE",
        "cast it to string",
    ),
    ("CREATE TABLE p USING cowstate", "neither columns nor LOCATION"),
    (
        "CREATE TABLE p USING cowstate OPTIONS (deleteWhen 'no = 1') LOCATION '{path}'",
        "'no', which",
    ),
    (
        f"CREATE TABLE p ({COLUMNS}) USING cowstate OPTIONS (keys 'id', readChangeFeed 'true')",
        "only read: leave keys out",
    ),
    ("CREATE TABLE p LIKE known", "does not support CREATE TABLE LIKE"),
    ("REPLACE TABLE known (id INT) USING cowstate OPTIONS (keys 'id')", REPLACED),
    ("CREATE OR REPLACE TABLE known USING cowstate AS SELECT * FROM known", REPLACED),
    (
        "CREATE OR REPLACE TABLE stranger USING cowstate AS SELECT 1 AS id",
        "default.stranger exists",
    ),
    ("ALTER TABLE known DROP COLUMN v", "DROP COLUMN would change Spark's catalog only"),
    ("ALTER TABLE known RENAME COLUMN v TO w", "RENAME COLUMN would change Spark's catalog only"),
    ("ALTER TABLE known ALTER COLUMN v COMMENT 'x'", "ALTER COLUMN would change Spark's catalog"),
    ("ALTER TABLE known ALTER COLUMN v TYPE BINARY", "ALTER COLUMN|CANNOT|NOT_SUPPORTED"),
    ("ALTER TABLE known REPLACE COLUMNS (w INT)", "DROP COLUMN would change Spark's catalog only"),
    ("ALTER TABLE known ADD COLUMNS (w INT FIRST)", "ADD COLUMNS with FIRST or AFTER"),
    ("ALTER TABLE known ADD COLUMNS (w INT DEFAULT 3)", "DEFAULT values are not supported"),
    ("ALTER TABLE known ADD COLUMNS (_op INT)", "_op"),
    ("ALTER TABLE known SET LOCATION '/tmp/elsewhere'", "SET LOCATION would change Spark's"),
    ("ALTER TABLE known SET TBLPROPERTIES ('path' = '/tmp/elsewhere')", "SET LOCATION would"),
    ("ALTER TABLE known SET TBLPROPERTIES ('keys' = 'id')", "TBLPROPERTIES has keys, which is an"),
    ("ALTER TABLE known SET TBLPROPERTIES ('option.keys' = 'v')", "keys"),
    ("ALTER TABLE fresh SET TBLPROPERTIES ('option.KEYS' = 'v')", "is option.keys in the catalog"),
    ("ALTER TABLE fresh UNSET TBLPROPERTIES ('option.KEYS')", "is option.keys in the catalog"),
    ("ALTER TABLE fresh UNSET TBLPROPERTIES ('option.keys')", r"unset both.*'option.keys', 'keys'"),
    ("ALTER TABLE fresh UNSET TBLPROPERTIES ('option.keys', 'keys')", "option keys is not set"),
    ("ALTER TABLE known SET TBLPROPERTIES ('option.readChangeFeed' = 'true')", "is fixed when"),
    ("ALTER TABLE known UNSET TBLPROPERTIES ('path')", "UNSET path would change Spark's catalog"),
    ("CREATE OR REPLACE TABLE seen USING cowstate AS SELECT 1 AS id", "default.seen exists"),
    ("ALTER TABLE known CLUSTER BY (v)", "CLUSTER BY would change Spark's catalog only"),
    ("ALTER TABLE known DEFAULT COLLATION UTF8_LCASE", "DEFAULT COLLATION would change Spark's"),
    ("ALTER TABLE known ADD CONSTRAINT k CHECK (id > 0)", "does not support table constraint"),
]


@pytest.fixture(scope="module")
def path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of a table, known to the catalog as `known`, beside an empty table and a table of
    Spark."""
    table = str(tmp_path_factory.mktemp("refused") / "table")
    write(spark.createDataFrame([(1, "a"), (2, "b")], COLUMNS), table, keys="id")
    write(spark.createDataFrame([(2, "c")], COLUMNS), table)
    spark.sql(f"CREATE TABLE known USING cowstate LOCATION '{table}'")
    spark.sql(f"CREATE TABLE fresh ({COLUMNS}) USING cowstate OPTIONS (keys 'id')")
    spark.sql("CREATE TABLE stranger USING parquet AS SELECT 7 AS id")
    spark.sql("CREATE VIEW seen AS SELECT id FROM stranger")
    yield table
    spark.sql("DROP VIEW IF EXISTS seen")
    for name in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="class")
def unchanged(spark: SparkSession, path: str) -> Iterator[None]:
    """Assert at the end that the tables, and their entries in the catalog, have not changed."""

    def said() -> list[Any]:
        return [
            spark.catalog.listTables(),
            *(spark.sql(f"SHOW CREATE TABLE {name}").collect() for name in TABLES),
        ]

    before = said()
    yield
    assert said() == before
    assert {name: in_order(spark.table(name).collect()) for name in TABLES} == ROWS


@pytest.mark.usefixtures("unchanged")
class TestStatements:
    @pytest.mark.parametrize(
        ("statement", "reason"), REFUSED, ids=[statement for statement, _ in REFUSED]
    )
    def test_what_tables_do_not_have_is_refused_with_the_way_out(
        self, spark: SparkSession, path: str, statement: str, reason: str
    ) -> None:
        with pytest.raises(PySparkException, match=reason):
            spark.sql(statement.format(path=path)).collect()

    def test_a_table_that_is_there_need_not_be_created(self, spark: SparkSession) -> None:
        spark.sql(f"CREATE TABLE IF NOT EXISTS known ({COLUMNS}) USING cowstate")


@pytest.mark.usefixtures("unchanged")
class TestWriters:
    @pytest.mark.parametrize(
        "replace",
        [
            lambda rows: rows.write.format("cowstate").mode("overwrite").saveAsTable("known"),
            lambda rows: rows.write.format("parquet").mode("overwrite").saveAsTable("known"),
            lambda rows: (
                rows.sparkSession.table("known").write.mode("overwrite").saveAsTable("known")
            ),
            lambda rows: rows.write.format("cowstate").mode("overwrite").saveAsTable("stranger"),
            lambda rows: rows.writeTo("known").using("cowstate").replace(),
            lambda rows: rows.writeTo("known").using("cowstate").createOrReplace(),
        ],
        ids=["cowstate", "parquet", "of itself", "stranger", "replace", "createOrReplace"],
    )
    def test_no_writer_replaces_a_table_that_is_there(
        self, spark: SparkSession, replace: Callable[[Any], None]
    ) -> None:
        with pytest.raises(PySparkException, match="exists, and to replace it Spark would drop"):
            replace(spark.createDataFrame([(9, "z")], COLUMNS))

    def test_a_table_of_another_format_is_overwritten_as_ever(self, spark: SparkSession) -> None:
        rows = spark.createDataFrame([(9, "z")], COLUMNS)
        for number in range(2):
            rows.write.mode("overwrite").saveAsTable("other")
            assert spark.table("other").count() == 1, number
        spark.sql("DROP TABLE other")

    def test_a_table_whose_first_write_names_no_keys_is_not_left_behind(
        self, spark: SparkSession
    ) -> None:
        rows = spark.createDataFrame([(9, "z")], COLUMNS)
        with pytest.raises(PySparkException, match="option keys is not set"):
            rows.write.format("cowstate").saveAsTable("p")
