"""In output mode update, aggregations and operators upsert the changes of a batch into a table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.applications.lost_commits import forget_last_commit
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.tables.table_jobs import (
    Upserts,
    assert_rows,
    in_order,
    read,
    rows_of,
    run_to_the_end,
    version_files,
)

pytestmark = pytest.mark.spark


def sums_of(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Compute the sums in batch."""
    sums: Counter[str] = Counter()
    for _, key, value in rows:
        sums[key] += value
    return in_order(sums.items())


def sums(upserts: Upserts) -> DataFrame:
    return upserts.source().groupBy("key").agg(F.sum("value").alias("total"))


def start(frame: DataFrame, upserts: Upserts, **options: Any) -> StreamingQuery:
    writer = frame.writeStream.format("cowstate").outputMode("update").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(upserts.checkpoint))
    return writer.options(**{"keys": "key", **options}).start(upserts.table)


def test_an_aggregation_that_is_restarted_equals_the_batch_computation(upserts: Upserts) -> None:
    chance = random.Random(7)
    for batch in range(6):
        keys = [f"key{chance.randrange(8)}" for _ in range(20)]
        upserts.feed(*((i, key, chance.randrange(100)) for i, key in enumerate(keys)))
        if batch % 2:
            run_to_the_end(start(sums(upserts), upserts))
            versions = len(upserts.versions())
            forget_last_commit(upserts.checkpoint)
            run_to_the_end(start(sums(upserts), upserts))
            assert len(upserts.versions()) == versions == batch + 1
            assert upserts.rows() == sums_of(upserts.fed)
    assert_rows(read(upserts.spark, upserts.table, versionAsOf=0), sums_of(upserts.fed[:20]))


def test_the_query_says_which_table_it_writes_and_how_much(upserts: Upserts) -> None:
    upserts.feed((1, "a", 1), (2, "b", 2), (3, "b", 3))
    query = start(sums(upserts), upserts)
    run_to_the_end(query)
    (progress,) = [batch for batch in query.recentProgress if batch.numInputRows]
    assert progress.sink.numOutputRows == 2
    assert progress.sink.description == f"cowstate.`{upserts.table}`"


def test_a_cowstate_operator_upserts_what_it_updates(spark: SparkSession, tmp_path: Path) -> None:
    stream, table = Stream(spark, tmp_path), str(tmp_path / "table")

    def run() -> None:
        writer = stream.operator().writeStream.format("cowstate").outputMode("update")
        writer = writer.option("checkpointLocation", str(stream.checkpoint)).option("keys", "key")
        run_to_the_end(writer.trigger(availableNow=True).start(table))

    for seed in range(4):
        stream.feed(random_rows(seed, 50, keys=12))
        if seed % 2:
            run()
            forget_last_commit(stream.checkpoint)
            run()
    totals = {key: (rows, total) for key, rows, total in rows_of(spark, table)}
    assert totals == totals_of(stream.fed)
    assert len(version_files(table)) == 4


def test_a_wrong_option_is_the_error_that_it_is_in_append_mode(upserts: Upserts) -> None:
    upserts.feed((1, "a", 1))
    reason = "ConfigurationError: .* names 'idd', which is not a column of the rows"
    with pytest.raises(PySparkException, match=reason):
        run_to_the_end(start(sums(upserts), upserts, keys="idd"))
    assert version_files(upserts.table) == []


def test_a_name_of_any_case_is_the_same_format(upserts: Upserts) -> None:
    upserts.feed((1, "a", 1), (2, "a", 2))
    writer = sums(upserts).writeStream.outputMode("Update").trigger(availableNow=True)
    run_to_the_end(
        writer.start(
            upserts.table,
            format="CowState",
            queryName="sums_of_keys",
            checkpointLocation=str(upserts.checkpoint),
            keys="key",
        )
    )
    assert upserts.rows() == [("a", 3)]
