"""Tables of Spark's catalog either work as with any other format or are refused with a clear
error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from checkpoint_store.state_reader import open_store
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.change_feed_streams import refuse_partitions_of_streams
from tests.support.stores.moto_s3 import moto_s3
from tests.support.tables.table_jobs import assert_rows, read, run_to_the_end, write

pytestmark = pytest.mark.spark
COLUMNS = "id BIGINT, v STRING"


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[Any]:
    """Run statements, and drop all tables and views of the catalog at the end."""
    yield lambda text: [tuple(row) for row in spark.sql(text).collect()]
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.tableType == 'VIEW' else 'TABLE'} {table.name}")


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """The path of a table with two versions."""
    table = str(tmp_path / "table")
    write(frame(spark, (1, "a"), (2, "b")), table, keys="id")
    write(frame(spark, (2, "c")), table)
    return table


def frame(spark: SparkSession, *rows: tuple[Any, ...], columns: str = COLUMNS) -> DataFrame:
    return spark.createDataFrame(list(rows), columns)


def content(spark: SparkSession, table: str, **options: Any) -> DataFrame:
    return spark.read.options(**options).table(table)


class TestWhatIsThere:
    def test_a_table_of_a_path_has_its_rows_and_columns(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate OPTIONS (path '{path}')")
        assert spark.table("known").schema.simpleString() == "struct<id:bigint,v:string>"
        assert_rows(content(spark, "known"), [(1, "a"), (2, "c")])
        assert_rows(content(spark, "known", batchId=0), [(1, "a"), (2, "b")])
        assert sql("SELECT a.v, b.id FROM known a JOIN known b USING (id) ORDER BY 2") == [
            ("a", 1),
            ("c", 2),
        ]

    def test_an_option_of_a_read_wins_over_its_alias_in_the_table(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        options = "OPTIONS (versionAsOf '0')"
        sql(f"CREATE TABLE known ({COLUMNS}) USING cowstate LOCATION '{path}' {options}")
        assert_rows(content(spark, "known"), [(1, "a"), (2, "b")])
        assert_rows(content(spark, "known", batchId=1), [(1, "a"), (2, "c")])

    def test_two_reads_of_one_query_may_have_options_of_their_own(
        self, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        before = "SELECT id, v FROM known WITH (batchId = 0)"
        assert sql(f"SELECT v FROM known EXCEPT SELECT v FROM ({before})") == [("c",)]

    def test_a_table_takes_rows_in_every_way_and_upserts_them(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known ({COLUMNS}) USING cowstate LOCATION '{path}'")
        sql("INSERT INTO known VALUES (3, 'sql')")
        sql("INSERT INTO known (v, id) VALUES ('named', 4)")
        frame(spark, (1, "inserted")).write.insertInto("known")
        frame(spark, (2, "written")).writeTo("known").append()
        frame(spark, (5, "saved")).write.format("cowstate").mode("append").saveAsTable("known")
        rows = frame(spark, (6, "first"), (6, "last"))
        rows.coalesce(1).writeTo("known").option("onDuplicate", "last").append()
        expected = [
            (1, "inserted"),
            (2, "written"),
            (3, "sql"),
            (4, "named"),
            (5, "saved"),
            (6, "last"),
        ]
        assert_rows(content(spark, "known"), expected)
        assert_rows(read(spark, path), expected)

    def test_rows_are_deleted_by_an_insert_that_says_which(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        sql("INSERT INTO known WITH (deleteWhen = 'id = 2') SELECT id, v FROM known")
        assert_rows(content(spark, "known"), [(1, "a")])
        assert_rows(read(spark, path), [(1, "a")])

    def test_columns_that_others_add_are_seen(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        wider = frame(spark, (3, "x", 1.5), columns=f"{COLUMNS}, w DOUBLE")
        write(wider, path, mergeSchema="true")
        assert_rows(content(spark, "known"), [(1, "a", None), (2, "c", None), (3, "x", 1.5)])
        assert_rows(content(spark, "known", batchId=0), [(1, "a", None), (2, "b", None)])

    def test_columns_that_are_added_to_the_catalog_come_with_their_first_rows(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        sql("ALTER TABLE known ADD COLUMNS (w INT)")
        assert_rows(content(spark, "known"), [(1, "a", None), (2, "c", None)])
        sql("INSERT INTO known VALUES (1, 'd', 7)")
        assert_rows(content(spark, "known"), [(1, "d", 7), (2, "c", None)])
        assert_rows(read(spark, path), [(1, "d", 7), (2, "c", None)])

    def test_changes_are_a_table_of_their_own(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(
            f"CREATE TABLE changes USING cowstate OPTIONS (path '{path}', readChangeFeed 'true', "
            "startingVersion '1')"
        )
        assert sql("SELECT v, _change_type FROM changes ORDER BY v") == [
            ("b", "update_preimage"),
            ("c", "update_postimage"),
        ]
        stream = spark.readStream.table("changes").writeStream.format("memory")
        run_to_the_end(stream.queryName("streamed").trigger(availableNow=True).start())
        assert len(sql("SELECT * FROM streamed WHERE _commit_version = 1")) == 2

    def test_a_table_of_changes_is_only_read(
        self, spark: SparkSession, sql: Any, path: str, tmp_path: Path
    ) -> None:
        sql(f"CREATE TABLE changes USING cowstate OPTIONS (path '{path}', readChangeFeed 'true')")
        frame(spark, (9, "z")).write.parquet(str(tmp_path / "input"))
        rows = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "input"))
        writer = rows.writeStream.trigger(availableNow=True)
        with pytest.raises(
            PySparkException, match="so it can only be read: write into the table of"
        ):
            run_to_the_end(
                writer.option("checkpointLocation", str(tmp_path / "c")).toTable("changes")
            )
        assert_rows(read(spark, path), [(1, "a"), (2, "c")])

    def test_a_column_that_is_added_may_be_null(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        sql("ALTER TABLE known ADD COLUMNS (w INT NOT NULL)")
        assert_rows(content(spark, "known"), [(1, "a", None), (2, "c", None)])
        columns = "id INT NOT NULL, v INT NOT NULL"
        sql(f"CREATE TABLE fresh ({columns}) USING cowstate OPTIONS (keys 'id')")
        sql("INSERT INTO fresh VALUES (1, NULL)")
        assert_rows(content(spark, "fresh"), [(1, None)])

    def test_what_a_table_is_can_be_shown_and_a_table_that_is_gone_be_dropped(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        ((shown,),) = sql("SHOW CREATE TABLE known")
        assert "USING cowstate" in shown
        assert f"LOCATION 'file:{path}'" in shown
        shutil.rmtree(path)
        with pytest.raises(PySparkException, match="NotAStoreError"):
            content(spark, "known").collect()
        sql("DROP TABLE known")


class TestNewTables:
    def test_a_declared_table_is_empty_until_it_is_written(
        self, spark: SparkSession, sql: Any
    ) -> None:
        sql(f"CREATE TABLE fresh ({COLUMNS}) USING cowstate OPTIONS (keys 'id')")
        assert_rows(content(spark, "fresh"), [])
        assert spark.table("fresh").count() == 0
        sql("INSERT INTO fresh VALUES (1, 'a')")
        sql("INSERT INTO fresh VALUES (1, 'b')")
        assert_rows(content(spark, "fresh"), [(1, "b")])

    def test_a_query_makes_a_table(self, spark: SparkSession, sql: Any, tmp_path: Path) -> None:
        rows = frame(spark, (1, "a"))
        rows.write.format("cowstate").option("keys", "id").saveAsTable("saved")
        elsewhere = str(tmp_path / "elsewhere")
        options = {"keys": "id", "path": elsewhere}
        rows.write.format("cowstate").options(**options).saveAsTable("saved_there")
        rows.writeTo("made").using("cowstate").option("keys", "id").create()
        selected = "selected USING cowstate OPTIONS (keys 'id') AS SELECT 1L AS id, 'a' AS v"
        sql(f"CREATE TABLE {selected}")
        writer = rows.write.format("cowstate").mode("overwrite").option("keys", "id")
        writer.saveAsTable("saved_over_nothing")
        rows.writeTo("replaced").using("cowstate").option("keys", "id").createOrReplace()
        sql(f"CREATE OR REPLACE TABLE re{selected}")
        made = ("saved", "saved_there", "made", "selected")
        for table in (*made, "saved_over_nothing", "replaced", "reselected"):
            assert_rows(content(spark, table), [(1, "a")])
        assert_rows(read(spark, elsewhere), [(1, "a")])

    def test_a_table_takes_the_place_of_another_by_its_name(
        self, spark: SparkSession, sql: Any
    ) -> None:
        rows = frame(spark, (1, "a"), (2, "b"))
        rows.write.format("cowstate").option("keys", "id").saveAsTable("known")
        sql(
            "CREATE TABLE other USING cowstate OPTIONS (keys 'v') AS SELECT v FROM known WHERE id=2"
        )
        sql("DROP TABLE known")
        sql("ALTER TABLE other RENAME TO known")
        sql("INSERT INTO known VALUES ('b'), ('c')")
        assert_rows(content(spark, "known"), [("b",), ("c",)])

    def test_options_and_columns_of_a_table_may_be_added(
        self, spark: SparkSession, sql: Any
    ) -> None:
        sql(f"CREATE TABLE fresh ({COLUMNS}) USING cowstate OPTIONS (keys 'id')")
        sql("ALTER TABLE fresh SET TBLPROPERTIES ('option.onDuplicate' = 'last', 'team' = 'a')")
        sql("ALTER TABLE fresh ADD COLUMNS (w INT)")
        sql("COMMENT ON TABLE fresh IS 'rows'")
        frame(spark, (1, "first", 1), (1, "last", 2), columns=f"{COLUMNS}, w INT").coalesce(
            1
        ).write.insertInto("fresh")
        assert_rows(content(spark, "fresh"), [(1, "last", 2)])
        sql("ALTER TABLE fresh UNSET TBLPROPERTIES ('team', 'option.onDuplicate')")
        ((shown,),) = sql("SHOW CREATE TABLE fresh")
        assert "'keys' = 'id'" in shown
        assert "team" not in shown
        assert "onDuplicate" not in shown

    def test_an_option_that_is_changed_is_shown_as_it_is(
        self, spark: SparkSession, sql: Any
    ) -> None:
        sql(
            f"CREATE TABLE fresh ({COLUMNS}) USING cowstate "
            "OPTIONS (keys 'id', onDuplicate 'first', onNullKey 'drop')"
        )
        sql("ALTER TABLE fresh SET TBLPROPERTIES ('option.onDuplicate' = 'last')")
        sql("ALTER TABLE fresh UNSET TBLPROPERTIES ('option.onNullKey', 'onNullKey')")
        frame(spark, (1, "first"), (1, "last")).coalesce(1).write.insertInto("fresh")
        assert_rows(content(spark, "fresh"), [(1, "last")])
        ((shown,),) = sql("SHOW CREATE TABLE fresh")
        sql("DROP TABLE fresh")
        sql(shown)
        assert "'onDuplicate' = 'last'" in shown
        assert "'first'" not in shown
        assert "onNullKey" not in shown

    def test_what_the_catalog_says_of_a_table_that_is_lost_may_change(
        self, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        shutil.rmtree(path)
        sql("COMMENT ON TABLE known IS 'lost'")
        sql("ALTER TABLE known SET TBLPROPERTIES ('team' = 'a')")
        sql("ALTER TABLE known UNSET TBLPROPERTIES ('team')")

    def test_a_stream_makes_and_fills_a_table(
        self, spark: SparkSession, sql: Any, tmp_path: Path
    ) -> None:
        frame(spark, (1, "a"), (2, "a")).write.parquet(str(tmp_path / "input"))
        rows = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "input"))
        for table, options in (("streamed", {"keys": "id"}), ("streamed_again", {})):
            if not options:
                sql(f"CREATE TABLE {table} ({COLUMNS}) USING cowstate OPTIONS (keys 'id')")
            writer = rows.writeStream.format("cowstate").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(tmp_path / table)).options(**options)
            run_to_the_end(writer.toTable(table))
            assert_rows(content(spark, table), [(1, "a"), (2, "a")])

    def test_a_table_may_be_on_an_object_store(self, spark: SparkSession, sql: Any) -> None:
        with moto_s3() as server:
            url = f"{server.new_bucket()}/table"
            options = str(server.storage_options).replace("'", '"')
            sql(
                f"CREATE TABLE remote ({COLUMNS}) USING cowstate "
                f"OPTIONS (path '{url}', keys 'id', storageOptions '{options}')"
            )
            sql("INSERT INTO remote VALUES (1, 'a')")
            assert_rows(content(spark, "remote"), [(1, "a")])
            assert open_store(url, server.storage_options).read().num_rows == 1
            sql("DROP TABLE remote")


class TestWhatIsRefused:
    def test_options_that_change_the_columns_are_for_a_path(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        for option in (
            *("readChangeFeed", "columns", "flattenCollectionTypes", "stateVarName"),
            *("operatorId", "storeName", "joinSide"),
        ):
            advice = rf'option\("{option}", …\).load\('
            with pytest.raises(IllegalArgumentException, match=advice):
                content(spark, "known", **{option: "true"}).collect()

    def test_another_path_than_the_table_s_is_an_error(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        writer = frame(spark, (9, "z")).write.format("cowstate").mode("append")
        with pytest.raises(IllegalArgumentException, match="option path is /tmp/elsewhere, and"):
            writer.option("path", "/tmp/elsewhere").saveAsTable("known")
        writer.option("path", path).saveAsTable("known")
        assert_rows(content(spark, "known").where("id = 9"), [(9, "z")])

    def test_a_stream_of_a_table_of_rows_is_told_to_name_its_path(
        self, spark: SparkSession, sql: Any, path: str
    ) -> None:
        sql(f"CREATE TABLE known USING cowstate LOCATION '{path}'")
        writer = spark.readStream.table("known").writeStream.format("noop")
        with pytest.raises(PySparkException) as caught:
            run_to_the_end(writer.trigger(availableNow=True).start())
        assert f'spark.readStream.format("cowstate").load("{path}")' in str(caught.value)
        assert "UnboundLocalError" not in str(caught.value)

    def test_partitions_are_refused_in_every_writer(
        self, spark: SparkSession, sql: Any, tmp_path: Path
    ) -> None:
        refuse_partitions_of_streams()
        rows, table = frame(spark, (1, "a")), str(tmp_path / "table")
        writer = rows.write.format("cowstate").mode("append").option("keys", "id")
        with pytest.raises(IllegalArgumentException, match="no partitions"):
            writer.partitionBy("v").save(table)
        with pytest.raises(IllegalArgumentException, match="no partitions"):
            rows.writeTo("parted").using("cowstate").partitionedBy("v").create()
        stream = spark.readStream.format("rate").load()
        for layout in ("partitionBy", "clusterBy"):
            with pytest.raises(ConfigurationError, match=f"{layout} is not for streams into"):
                getattr(stream.writeStream.format("cowstate"), layout)("value")
            with pytest.raises(ConfigurationError, match=f"{layout} is not for streams into"):
                getattr(stream.writeStream, layout)("value").format("CowState")
        with pytest.raises(ConfigurationError, match="partitionBy is not for streams into"):
            stream.writeStream.start(table, format="cowstate", partitionBy="value")
        stream.writeStream.partitionBy("value").format("parquet")
