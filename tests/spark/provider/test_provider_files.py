"""The provider's files, read without Spark, have the rows that Spark's own state reader finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)
from tests.support.provider.adoption_jobs import SNAPSHOTS, joined
from tests.support.provider.provider_histories import StoreHistory, change_feed
from tests.support.provider.provider_inputs import EVENT_SCHEMA, EventShape, write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    JOIN_STORES,
    STATE_STORE,
    Fields,
    Job,
    Options,
    ProviderRun,
    maintenance_of,
    text,
)

pytestmark = pytest.mark.spark

BATCHES = 3
SHAPE = EventShape(rows=40, keys=12)
DEFAULT = {"storeName": "default"}
MERGING = {
    **SNAPSHOTS,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "4",
}
PLAIN = "format 1"
LATEST = "format 2, snapshots, row checksums"
SETTINGS: dict[str, Options] = {
    PLAIN: {},
    LATEST: {
        f"{STATE_STORE}.checkpointFormatVersion": "2",
        f"{STATE_STORE}.rowChecksum.enabled": "true",
        **SNAPSHOTS,
    },
}
MAGIC = b"\x28\xb5\x2f\xfd"
"""The first bytes of a compressed buffer."""


def of_many_types(events: DataFrame, _: DataFrame) -> DataFrame:
    keys = {
        "word": "key",
        "nested": "named_struct('rest', amount % 3, 'names', array(key, NULL, 'x'))",
        "big": "CAST(amount % 5 - 2 AS DECIMAL(25, 3))",
        "small": "CAST(amount % 2 - 0.5 AS DECIMAL(9, 1))",
        "day": "DATE'2024-01-01' + CAST(amount % 2 AS INT)",
        "flag": "amount > 500",
    }
    fields = {
        "moment": "moment",
        "local": "CAST(moment AS TIMESTAMP_NTZ)",
        "bytes": "CAST(text AS BINARY)",
        "real": "CAST(amount AS FLOAT) / 7",
        "double": "amount / 3D",
        "tiny": "CAST(amount % 100 AS TINYINT)",
        "short": "CAST(amount AS SMALLINT)",
        "map": "map('a', named_struct('n', amount, 't', text), 'b', NULL)",
        "arrays": "array(array(CAST(amount AS INT), NULL), NULL, array())",
        "gap": "make_dt_interval(0, 0, 0, amount)",
        "never": "IF(amount < 0, text, NULL)",
    }
    # Spark names the columns of a state by function; rows as dicts need each name once.
    values = {
        "newest": "last(struct(" + ", ".join(f"{f} AS {name}" for name, f in fields.items()) + "))",
        "longest": "max(struct(length(text), text, moment))",
        "total": "sum(CAST(amount AS DECIMAL(28, 10)))",
        "events": "count(*)",
    }
    named = events.withColumns({name: F.expr(text) for name, text in keys.items()})
    return named.groupBy(*keys).agg(*[F.expr(text).alias(name) for name, text in values.items()])


def newest_texts(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.max("text"), F.sum("amount"))


JOBS = {
    "many types": Job(of_many_types, "update", stores=[DEFAULT]),
    "join": Job(joined, stores=JOIN_STORES),
}

Finished = Callable[[str, str], ProviderRun]


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Build finished runs of a job with these settings; tests only read the result."""

    @cache
    def run(name: str, settings_name: str) -> ProviderRun:
        folder = tmp_path_factory.mktemp("finished")
        left = write_batches(folder / "left", 11, BATCHES, SHAPE)
        right = write_batches(folder / "right", 12, BATCHES, SHAPE)
        ended = ProviderRun(spark, JOBS[name], COWSTATE, folder / "run", SETTINGS[settings_name])
        with maintenance_of(spark):
            ended.run_with_restart(left, right)
        return ended

    return run


def in_order(rows: list[Fields]) -> list[str]:
    return sorted(repr(row) for row in rows)


def spark_state_of(run: ProviderRun, store: Options, batch: int) -> list[str]:
    options = {"batchId": str(batch), **store}
    return in_order(run.read_state(options).toArrow().to_pylist())


def changes_of(feed: list[Fields], batch: int) -> list[Fields]:
    """The changes of a batch, in the form of a reader's answer for the batch."""
    names = ("change_type", "key", "value", "partition_id")
    return [{name: row[name] for name in names} for row in feed if row["batch_id"] == batch]


@pytest.mark.parametrize(
    ("name", "settings"), [("many types", PLAIN), *((name, LATEST) for name in JOBS)]
)
def test_decoded_state_and_changes_of_every_batch_are_those_that_spark_reads(
    finished: Finished, name: str, settings: str
) -> None:
    run = finished(name, settings)
    if settings == LATEST:
        assert [*run.checkpoint.glob("state/0/**/*.snapshot.arrow")]
    changelogs = run.checkpoint.glob("state/0/**/*.changelog.arrow")
    largest = max(changelogs, key=lambda file: file.stat().st_size)
    assert MAGIC in largest.read_bytes()
    checkpoint = open_object_store(run.checkpoint.as_uri())
    batches = committed_batches(checkpoint)
    assert len(batches) >= BATCHES
    rows = 0
    for store in run.job.stores:
        feed = change_feed(run, store)
        states = StoreHistory.of_feed(run, feed).states()
        for batch in batches:
            state = read_state(checkpoint, batch, store_name=store["storeName"])
            state.validate(full=True)
            entries = state.to_pylist()
            if batch == BATCHES - 1:
                assert in_order(entries) == spark_state_of(run, store, batch)
            values = {(row["partition_id"], text(row["key"])): row["value"] for row in entries}
            assert values == states[batch]
            assert len(values) == len(entries)
            changes = read_changes(checkpoint, batch, store_name=store["storeName"])
            changes.validate(full=True)
            assert in_order(changes.to_pylist()) == in_order(changes_of(feed, batch))
            rows += state.num_rows
    assert rows > 50


def test_a_query_whose_changelogs_were_merged_goes_on_from_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The state is too large for a full rewrite after batches of a few rows."""
    (large,) = write_batches(tmp_path / "large", 21, 1, EventShape(20_000, 10**9))
    first = large.rename(tmp_path / "first.parquet")
    os.utime(first, (1_600_000_000,) * 2)
    small = write_batches(tmp_path / "small", 22, 73, EventShape(4, 10**9))
    run = ProviderRun(spark, Job(newest_texts, "update"), COWSTATE, tmp_path / "run", MERGING)
    with maintenance_of(spark):
        run.run([first, *small[:69]], [])
        assert [*run.checkpoint.glob("state/0/0/*.merged.arrow")]
        assert len([*run.checkpoint.glob("state/0/0/*.snapshot.arrow")]) == 1
        run.run(small[69:], [])
    assert len([*run.checkpoint.glob("state/0/0/*.changelog.arrow")]) < 73
    files = spark.read.schema(EVENT_SCHEMA).parquet(str(tmp_path / "run" / "left"))
    expected = [tuple(row.values()) for row in newest_texts(files, files).toArrow().to_pylist()]
    checkpoint = open_object_store(str(run.checkpoint))
    newest = committed_batches(checkpoint)[-1]
    state = read_state(checkpoint, newest)
    groups = [(*row["key"].values(), *row["value"].values()) for row in state.to_pylist()]
    assert sorted(map(repr, groups)) == sorted(map(repr, expected))
    assert in_order(state.to_pylist()) == spark_state_of(run, DEFAULT, newest)
