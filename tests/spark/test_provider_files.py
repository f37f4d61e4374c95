"""The provider's files, read without Spark, hold what Spark's own state reader finds in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoint_store.errors import CorruptObjectError
from checkpoint_store.files.document import Source
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)
from checkpoint_store.provider.provider_file import decode_provider_file
from checkpoint_store.provider.provider_file_names import parse_provider_file
from tests.support.provider_inputs import EVENT_SCHEMA, EventShape, write_batches
from tests.support.provider_jobs import (
    COWSTATE,
    STATE_STORE,
    Job,
    Options,
    ProviderRun,
    maintenance_of,
)

pytestmark = pytest.mark.spark

BATCHES = 3
SHAPE = EventShape(rows=40, keys=12)
DEFAULT = "default"
JOIN_STORES = [
    f"{side}-{name}"
    for side in ("left", "right")
    for name in ("keyToNumValues", "keyWithIndexToValue")
]
SNAPSHOTS = {
    f"{STATE_STORE}.minDeltasForSnapshot": "1",
    f"{STATE_STORE}.maintenanceInterval": "50ms",
}
MERGING = {
    **SNAPSHOTS,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "10",
}
LATEST = "zstd, format 2, snapshots, row checksums"
SETTINGS: dict[str, Options] = {
    "lz4": {f"{STATE_STORE}.compression.codec": "lz4"},
    LATEST: {
        f"{STATE_STORE}.compression.codec": "zstd",
        f"{STATE_STORE}.checkpointFormatVersion": "2",
        f"{STATE_STORE}.rowChecksum.enabled": "true",
        **SNAPSHOTS,
    },
}


def marked(events: DataFrame) -> DataFrame:
    return events.withWatermark("moment", "1 minute")


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


def sessions(events: DataFrame, _: DataFrame) -> DataFrame:
    groups = marked(events).groupBy(F.session_window("moment", "25 seconds"), "key")
    return groups.agg(F.count("*"), F.max("text"), F.sum("amount"))


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    condition = (
        "l.key = r.key AND r.moment BETWEEN l.moment - INTERVAL 20 SECONDS "
        "AND l.moment + INTERVAL 30 SECONDS"
    )
    return marked(left).alias("l").join(marked(right).alias("r"), F.expr(condition), "left_outer")


def newest_texts(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.max("text"), F.sum("amount"))


JOBS: dict[str, tuple[Job, list[str]]] = {
    "many types": (Job(of_many_types, "update"), [DEFAULT]),
    "session windows": (Job(sessions), [DEFAULT]),
    "join": (Job(joined), JOIN_STORES),
}

Begin = Callable[[str, Options], ProviderRun]


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path) -> Begin:
    def run(name: str, settings: Options) -> ProviderRun:
        left = write_batches(tmp_path / "left", 11, BATCHES, SHAPE)
        right = write_batches(tmp_path / "right", 12, BATCHES, SHAPE)
        begun = ProviderRun(spark, JOBS[name][0], COWSTATE, tmp_path / "run", settings)
        with maintenance_of(spark):
            begun.run_with_restart(left, right)
        return begun

    return run


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in rows)


def spark_state_of(run: ProviderRun, store: str, batch: int) -> list[str]:
    options = {"batchId": str(batch), "storeName": store}
    return in_order(run.read_state(options).toArrow().to_pylist())


def spark_changes_of(run: ProviderRun, store: str, batch: int) -> list[str]:
    options = {
        "readChangeFeed": "true",
        "changeStartBatchId": str(batch),
        "changeEndBatchId": str(batch),
        "storeName": store,
    }
    changes = run.read_state(options).select("change_type", "key", "value", "partition_id")
    return in_order(changes.toArrow().to_pylist())


@pytest.mark.parametrize(
    ("name", "settings"), [("many types", "lz4"), *((name, LATEST) for name in JOBS)]
)
def test_decoded_state_and_changes_of_every_batch_are_those_that_spark_reads(
    started: Begin, name: str, settings: str
) -> None:
    run = started(name, SETTINGS[settings])
    if settings == LATEST:
        assert [*run.checkpoint.glob("state/0/**/*.snapshot.arrow")]
    checkpoint = open_object_store(run.checkpoint.as_uri())
    batches = committed_batches(checkpoint)
    assert len(batches) >= BATCHES
    rows = 0
    for batch in batches:
        for store in JOBS[name][1]:
            state = read_state(checkpoint, batch, store_name=store)
            state.validate(full=True)
            assert in_order(state.to_pylist()) == spark_state_of(run, store, batch)
            changes = read_changes(checkpoint, batch, store_name=store)
            changes.validate(full=True)
            assert in_order(changes.to_pylist()) == spark_changes_of(run, store, batch)
            rows += state.num_rows
    assert rows > 50


def test_a_query_whose_changelogs_were_merged_goes_on_from_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its state is too large to be written again for batches of a few rows."""
    (large,) = write_batches(tmp_path / "large", 21, 1, EventShape(20_000, 10**9))
    first = large.rename(tmp_path / "first.parquet")
    os.utime(first, (1_600_000_000,) * 2)
    small = write_batches(tmp_path / "small", 22, 78, EventShape(4, 10**9))
    run = ProviderRun(spark, Job(newest_texts, "update"), COWSTATE, tmp_path / "run", MERGING)
    with maintenance_of(spark):
        run.run([first, *small[:70]], [])
        assert [*run.checkpoint.glob("state/0/0/*.merged.arrow")]
        assert len([*run.checkpoint.glob("state/0/0/*.snapshot.arrow")]) == 1
        run.run(small[70:], [])
    assert len([*run.checkpoint.glob("state/0/0/*.changelog.arrow")]) < 78
    files = spark.read.schema(EVENT_SCHEMA).parquet(str(tmp_path / "run" / "left"))
    expected = [tuple(row.values()) for row in newest_texts(files, files).toArrow().to_pylist()]
    checkpoint = open_object_store(str(run.checkpoint))
    newest = committed_batches(checkpoint)[-1]
    state = read_state(checkpoint, newest)
    found = [(*row["key"].values(), *row["value"].values()) for row in state.to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert in_order(state.to_pylist()) == spark_state_of(run, DEFAULT, newest)


def test_the_columns_have_the_types_of_the_query(started: Begin) -> None:
    run = started("many types", {})
    state = read_state(open_object_store(str(run.checkpoint)), 0)
    by_spark = run.read_state({"batchId": "0"}).toArrow()
    key, value = (state.schema.field(name).type for name in ("key", "value"))
    assert key.field("nested").type.field("names").type.value_type == pa.string()
    assert key.field("big").type == pa.decimal128(25, 3)
    assert [field.name for field in value] == [field.name for field in by_spark["value"].type]
    for ours, its in zip(
        [*key, *value], [*by_spark["key"].type, *by_spark["value"].type], strict=True
    ):
        if not pa.types.is_nested(ours.type):
            assert ours.type == its.type


def test_no_byte_of_a_file_changes_into_another_row(started: Begin) -> None:
    run = started("many types", SETTINGS["lz4"])
    path = min(
        run.checkpoint.glob("state/0/*/*.changelog.arrow"), key=lambda file: file.stat().st_size
    )
    name = parse_provider_file(path.name)
    assert name is not None
    source = Source(run.checkpoint.as_uri(), path.name)
    data = path.read_bytes()
    whole = decode_provider_file(data, name, source).batches
    found = 0
    for place in range(0, len(data), 5):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        try:
            assert decode_provider_file(bytes(damaged), name, source).batches == whole
        except CorruptObjectError:
            found += 1
    assert found > len(data) // 5 * 0.8
