"""Operators with state in RocksDB work in queries as users run them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.applications.streams import Stream, totals_of
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

BACKEND = "spark.cowstate.backend"
LOCAL_DIRECTORY = "spark.cowstate.rocksdb.localDirectory"


def random_rows(chance: random.Random) -> list[tuple[str, int]]:
    return [(f"key {chance.randrange(40)}", chance.randrange(100)) for _ in range(60)]


def test_a_state_in_databases_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    stream, chance = Stream(spark, tmp_path), random.Random(5)
    settings = {BACKEND: "rocksdb", "spark.cowstate.minEpochsForSnapshot": "1"}
    for parallelism in (2, 3, 2):
        stream.feed(random_rows(chance))
        with configured(spark, {**settings, "spark.cowstate.parallelism": str(parallelism)}):
            stream.run(stream.operator())
    store = stream.store()
    assert [*store.glob("epochs/*/database-*.json")]
    rows = spark.read.format("cowstate").load(str(store))
    read = {row.key: (row.rows, row.total) for row in rows.collect()}
    assert read == totals_of(stream.fed)
    key = min(read)
    assert [row.total for row in rows.where(rows.key == key).collect()] == [read[key][1]]
    old = spark.read.format("cowstate").option("versionAsOf", "0").load(str(store))
    assert old.count() == len({key for key, _ in stream.fed[:60]})


def test_files_are_below_the_directory_that_is_configured_and_have_the_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    local = tmp_path / "fast disk"
    local.mkdir()
    stream = Stream(spark, tmp_path)
    stream.feed([("a", 1)])
    settings = {
        BACKEND: "rocksdb",
        LOCAL_DIRECTORY: str(local),
        "spark.cowstate.rocksdb.compression": "lz4",
        "spark.cowstate.rocksdb.writeBufferMB": "5",
    }
    with configured(spark, settings):
        stream.run(stream.operator())
    assert stream.totals() == {"a": (1, 1)}
    options = [path.read_text() for path in local.glob("cowstate-*/*/*/*/db/OPTIONS-*")]
    assert options
    assert all("compression=kLZ4Compression" in text for text in options)
    assert all(f"write_buffer_size={5 << 20}\n" in text for text in options)


def test_a_directory_that_cannot_be_written_fails_the_query_and_names_the_setting(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    stream.feed([("a", 1)])
    settings = {BACKEND: "rocksdb", LOCAL_DIRECTORY: str(tmp_path / "file")}
    with configured(spark, settings), pytest.raises(Exception, match=LOCAL_DIRECTORY):
        stream.run(stream.operator())
    with configured(spark, {BACKEND: "rocksdb"}):
        stream.run(stream.operator())
    assert stream.totals() == {"a": (1, 1)}
