"""Upserts of batches and of streams write the same tables as a plain computation."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoint_store.state_reader import open_store
from tests.support.applications.lost_commits import forget_last_commit
from tests.support.tables.table_jobs import (
    Upserts,
    assert_rows,
    in_order,
    last_rows,
    read,
    rows_of,
    run_to_the_end,
    version_files,
    write,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


class Timed(Upserts):
    """Upserts of rows that may be 5 seconds late."""

    def source(self) -> DataFrame:
        return super().source().withWatermark("moment", "5 seconds")


def at(seconds: int | None) -> datetime | None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return None if seconds is None else start + timedelta(seconds=seconds)


def milliseconds(moment: datetime | None) -> int:
    assert moment is not None
    return int(moment.timestamp() * 1000)


def totals_of(upserts: Upserts) -> DataFrame:
    return upserts.source().groupBy("key").agg(F.sum("value").alias("total"))


class TestBatches:
    def test_what_is_written_in_batches_is_the_last_row_of_each_key(
        self, spark: SparkSession, table: str
    ) -> None:
        frames = [
            spark.range(start, start + 300, numPartitions=2).selectExpr(
                "id % 250 + 100 as id", f"id * {start} as v", "cast(id as string) as s"
            )
            for start in (0, 100, 350)
        ]
        for frame in frames:
            write(frame, table, keys="id", onDuplicate="last")
        fed = [tuple(row) for frame in frames for row in frame.collect()]
        assert_rows(read(spark, table), last_rows(fed))
        assert read(spark, table).schema.simpleString() == "struct<id:bigint,v:bigint,s:string>"

    def test_every_type_comes_back_as_it_was(self, spark: SparkSession, table: str) -> None:
        frame = spark.sql(
            "select 1Y as tiny, 2S as small, 3 as number, 4L as id, float(0.1) as single, "
            "0.2D as double, 'täxt' as text, X'00ff' as raw, 12.345BD as amount, true as flag, "
            "date'2020-02-29' as day, timestamp'2020-07-01 12:30:00.123456' as moment, "
            "timestamp_ntz'2020-07-01 12:30:00.123456' as wall, array('a', null) as tags, "
            "map('s', 1) as sizes, named_struct('x', 1, 'y', 'z') as nested, "
            "cast(null as string) as nothing"
        )
        write(frame, table, keys="id,day,text,amount")
        # Without ignored metadata, maps also compare whether their values may be null.
        assert_df_equality(read(spark, table), frame, ignore_nullable=True, ignore_metadata=True)


class TestStreams:
    def test_random_upserts_leave_the_last_row_of_each_key(self, upserts: Upserts) -> None:
        chance = random.Random(4)
        for batch in range(6):
            ids = chance.sample(range(60), 25)
            upserts.feed(*((i, f"key{chance.randrange(9)}", batch) for i in ids))
        upserts.run()
        assert upserts.rows() == last_rows(upserts.fed)
        assert len(upserts.versions()) == 6

    def test_a_version_says_how_far_in_event_time_all_its_rows_are(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        seconds = [[10, 40, None], [20], [50, 45]]
        upserts = Timed(spark, tmp_path, schema="id bigint, moment timestamp")
        for number, batch in enumerate(seconds):
            upserts.feed(*((10 * number + place, at(second)) for place, second in enumerate(batch)))
        upserts.run()
        watermarks = [info.watermark_ms for info in open_store(upserts.table).versions()]
        assert watermarks == [milliseconds(at(35)), milliseconds(at(35)), milliseconds(at(45))]

    def test_a_batch_that_spark_repeats_after_its_commit_changes_nothing(
        self, upserts: Upserts
    ) -> None:
        upserts.feed((1, "a", 1))
        upserts.feed((1, "a", 2), (2, "b", 2))
        upserts.run()
        before, versions = upserts.rows(), upserts.versions()
        forget_last_commit(upserts.checkpoint)
        upserts.run()
        assert (upserts.rows(), upserts.versions()) == (before, versions)
        upserts.feed((3, "c", 3))
        upserts.run()
        assert upserts.rows() == in_order([*before, (3, "c", 3)])

    def test_duplicates_fail_a_batch_that_goes_on_once_a_policy_is_given(
        self, upserts: Upserts
    ) -> None:
        upserts.files_per_batch = 2
        upserts.feed((7, "a", 1), (8, "a", 1))
        upserts.feed((7, "a", 2), (9, "a", 2))
        with pytest.raises(PySparkException, match=r"several rows of one key, such as id=7, "):
            upserts.run()
        assert upserts.versions() == []
        upserts.run(onDuplicate="last")
        assert upserts.rows() == [(7, "a", 2), (8, "a", 1), (9, "a", 2)]

    def test_a_second_query_is_refused_until_it_takes_the_table_over(
        self, upserts: Upserts, tmp_path: Path
    ) -> None:
        upserts.feed((1, "a", 1))
        upserts.run()
        other = tmp_path / "other-checkpoint"
        query = upserts.start(other)
        with pytest.raises(PySparkException, match=r"is written by query .*; query .*takeOver"):
            query.awaitTermination()
        assert "ConflictingWriterError" in str(query.exception())
        assert len(upserts.versions()) == 1
        upserts.run(other, takeOver="true")
        upserts.feed((2, "b", 2))
        with pytest.raises(PySparkException, match="ConflictingWriterError"):
            upserts.run()
        upserts.run(other)
        assert upserts.rows() == [(1, "a", 1), (2, "b", 2)]

    def test_a_query_whose_newest_version_is_gone_is_told_and_runs_its_batch_again(
        self, upserts: Upserts
    ) -> None:
        for number in (1, 2, 3):
            upserts.feed((number, "a", number))
            if number == 3:
                Path(upserts.table, "versions", max(upserts.versions())).unlink()
                with pytest.raises(
                    PySparkException, match=r"LostVersionError.*run again from batch 1"
                ):
                    upserts.run()
            else:
                upserts.run()
        assert upserts.rows() == [(1, "a", 1)]
        # The repair in docs/how-to/troubleshoot.md.
        for path in ("commits/1", "commits/.1.crc", "offsets/2", "offsets/.2.crc"):
            (upserts.checkpoint / path).unlink()
        upserts.run()
        assert upserts.rows() == [(1, "a", 1), (2, "a", 2), (3, "a", 3)]

    def test_a_query_folds_its_files_and_deletes_expired_versions(self, upserts: Upserts) -> None:
        """Retention deletes ten versions at once, in addition to the two retained versions."""
        for batch in range(14):
            upserts.feed((batch % 3, "a", batch))
        upserts.run(minVersionsToRetain="2")
        assert upserts.rows() == last_rows(upserts.fed)
        assert len(upserts.versions()) < 12
        history = open_store(upserts.table)._history
        assert len(history.at(history.versions()[-1]).state) < 10

    def test_complete_output_of_an_aggregation_is_upserted(self, upserts: Upserts) -> None:
        upserts.feed((1, "a", 1), (2, "b", 2))
        upserts.feed((3, "a", 3))
        table = str(upserts.folder / "totals")
        writer = totals_of(upserts).writeStream.format("cowstate").outputMode("complete")
        writer = writer.option("keys", "key").trigger(availableNow=True)
        run_to_the_end(writer.option("checkpointLocation", str(upserts.checkpoint)).start(table))
        assert_rows(read(upserts.spark, table), [("a", 4), ("b", 2)])
        assert_rows(read(upserts.spark, table, versionAsOf=0), [("a", 1), ("b", 2)])


class TestForeachBatch:
    def test_update_output_is_upserted_once_even_if_spark_repeats_the_batch(
        self, upserts: Upserts
    ) -> None:
        upserts.feed(*((i, f"key{i % 3}", 1) for i in range(9)))
        upserts.feed((1, "key1", 10), (9, "key9", 20))
        self.run(upserts)
        totals = [("key0", 3), ("key1", 13), ("key2", 3), ("key9", 20)]
        assert_rows(read(upserts.spark, upserts.table), totals)
        versions = upserts.versions()
        assert len(versions) == 2
        forget_last_commit(upserts.checkpoint)
        self.run(upserts)
        assert upserts.versions() == versions
        assert_rows(read(upserts.spark, upserts.table), totals)

    def test_a_second_write_of_a_batch_into_one_table_is_refused(self, upserts: Upserts) -> None:
        upserts.feed((1, "a", 1))
        with pytest.raises(PySparkException, match=r"batch 0 of query .* is written .* twice"):
            self.run(upserts, times=2)

    @staticmethod
    def run(upserts: Upserts, times: int = 1) -> None:
        def sink(batch: DataFrame, _: int) -> None:
            for _ in range(times):
                write(batch, upserts.table, keys="key")

        writer = totals_of(upserts).writeStream.foreachBatch(sink).outputMode("update")
        writer = writer.option("checkpointLocation", str(upserts.checkpoint))
        run_to_the_end(writer.trigger(availableNow=True).start())


class TestDeletesAndNulls:
    def test_nulls_keep_what_the_key_has_since_it_was_deleted(self, upserts: Upserts) -> None:
        upserts.options = {"keys": "id", "ignoreNullUpdates": "true", "deleteWhen": "value = 0"}
        upserts.feed((1, "a", 1), (2, "b", 2), (3, "c", 3))
        upserts.feed((1, None, 5), (2, "d", None), (3, "c", 0))
        upserts.feed((3, None, 7), (4, None, None))
        upserts.run()
        assert upserts.rows() == [(1, "a", 5), (2, "d", 2), (3, None, 7), (4, None, None)]

    def test_null_keys_are_an_error_unless_they_are_dropped_or_kept(
        self, spark: SparkSession, table: str
    ) -> None:
        frame = spark.createDataFrame([(None, 1), (2, 2)], "id bigint, v bigint")
        with pytest.raises(
            PySparkException, match=r"key column 'id' is null in 1 rows .*onNullKey"
        ):
            write(frame, table, keys="id")
        assert version_files(table) == []
        write(frame, table, keys="id", onNullKey="drop")
        assert_rows(read(spark, table), [(2, 2)])
        write(frame, table, onNullKey="keep")
        write(frame.withColumn("v", F.col("v") + 10), table, onNullKey="keep")
        assert_rows(read(spark, table), [(2, 12), (None, 11)])


class TestColumns:
    @pytest.fixture
    def old(self, spark: SparkSession, table: str) -> Iterator[str]:
        write(spark.range(3).selectExpr("id", "id * 10 as v"), table, keys="id")
        return table

    def test_a_new_column_is_null_in_old_rows_and_unknown_to_old_versions(
        self, spark: SparkSession, old: str
    ) -> None:
        wider = spark.range(2, 4).selectExpr("id", "id * 100 as v", "'new' as s")
        with pytest.raises(PySparkException, match=r"has no column 's'; write with .*mergeSchema"):
            write(wider, old)
        assert len(version_files(old)) == 1
        write(wider, old, mergeSchema="true")
        assert rows_of(spark, old) == in_order(
            [(0, 0, None), (1, 10, None), (2, 200, "new"), (3, 300, "new")]
        )
        assert read(spark, old, versionAsOf=0).columns == ["id", "v"]
        assert_rows(read(spark, old, versionAsOf=0), [(0, 0), (1, 10), (2, 20)])

    def test_a_table_that_is_made_anew_with_another_key_is_written_by_that(
        self, spark: SparkSession, table: str
    ) -> None:
        rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string")
        more = spark.createDataFrame([(3, "a"), (3, "c")], "id long, v string")
        for keys, expected in (("id", None), ("v", [(2, "b"), (3, "a"), (3, "c")])):
            write(rows, table, keys=keys)
            if expected is None:
                write(rows, table)
                shutil.rmtree(table)
            else:
                write(more, table)
                assert_rows(read(spark, table), expected)


class TestBadInput:
    def test_modes_that_would_replace_rows_are_refused(
        self, spark: SparkSession, table: str
    ) -> None:
        rows = spark.range(3).selectExpr("id", "id as v")
        writer = rows.write.format("cowstate").option("keys", "id")
        with pytest.raises(PySparkException, match='"ErrorIfExists" mode'):
            writer.mode("errorifexists").save(table)
        writer.mode("overwrite").save(table)
        with pytest.raises(PySparkException, match=r'mode\("overwrite"\) and INSERT OVERWRITE'):
            writer.mode("overwrite").save(table)
        assert_rows(read(spark, table), [(0, 0), (1, 1), (2, 2)])
        assert len(version_files(table)) == 1
