"""Keys of struct type, such as windows, are hashed, ordered, shown, stored and read as in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import spark_state
from tests.support.processors.processors import Processor
from tests.support.provider.provider_jobs import PROVIDER_KEY, ROCKSDB, configured

pytestmark = pytest.mark.spark


class CountsWindows(Processor):
    """A processor that emits the key and the rows so far; its timer emits the count again."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n bigint")
        self._names = handle.getMapState("names", "name string", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0]
        for row in rows:
            count += 1
            self._names.updateValue((row.name,), (count,))
        self._count.update((count,))
        yield Row(key=shown(key), rows=count)


def shown(key: Any) -> str:
    window, kind = key
    start, end = (window[name].timestamp() for name in ("start", "end"))
    return f"{type(window).__name__} {start} {end} {kind}"


def test_windows_are_keys_as_in_spark_s_own_operator(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    for number in range(4):
        rows = [(name, 7 * number + n, n % 2) for n, name in enumerate(["a", "b", "c", "a"])]
        events = spark.createDataFrame(rows, "name string, second bigint, kind bigint")
        events.coalesce(1).write.mode("append").parquet(str(folder))
    schema = "name string, second bigint, kind bigint"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    events = source.parquet(str(folder)).withColumn("at", F.timestamp_seconds("second"))
    grouped = events.withColumn("w", F.window("at", "10 seconds")).groupBy("w", "kind")
    output = "key string, rows bigint"

    def run(plan: Any, name: str) -> list[tuple[Any, ...]]:
        emitted: list[tuple[Any, ...]] = []

        def keep(batch: Any, epoch: int) -> None:
            emitted.extend((epoch, *row) for row in batch.collect())

        writer = plan.writeStream.foreachBatch(keep).outputMode("update")
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(emitted)

    store = str(tmp_path / "store")
    with configured(spark, {"spark.cowstate.store": store, "spark.cowstate.parallelism": "3"}):
        ours = run(
            spark_state.transform_with_state(
                grouped, CountsWindows(), output, "update", "None", name="windows"
            ),
            "ours",
        )
    with configured(spark, {PROVIDER_KEY: ROCKSDB}):
        assert ours == run(
            grouped.transformWithState(CountsWindows(), output, "update", "None"), "spark"
        )
    (url,) = Path(store).glob("*/windows")
    state = spark.read.format("cowstate").option("stateVarName", "count").load(str(url))
    last = {key: rows for _, key, rows in ours}
    held = {
        shown((row.w.asDict(), row.kind)): row.n for row in state.select("w", "kind", "n").collect()
    }
    assert held == last
    names = spark.read.format("cowstate").option("stateVarName", "names").load(str(url))
    assert names.count() == len(last)
