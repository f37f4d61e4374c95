"""Writes checkpoints of the provider:

    python -m tests.compatibility.write_provider_checkpoint FOLDER

A query runs once for each checkpoint format of Spark, in `provider/format-1` and
`provider/format-2`. `provider/format-2-rescaled` is a copy with three partitions instead of two.
Three batches count and add up a few rows by key in two partitions, with a snapshot of the second
batch. Format 2 has row checksums. Only the files for the tests are kept: offsets, commits, metadata
and state, without `.crc` files.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_state
from cowstate.cli.command_line import main as command

BATCHES = 3
SNAPSHOT_BATCH = 1
FORMATS = (1, 2)
KEPT = ("offsets", "commits", "metadata", "state")
KEYS = ("a", "ä longer key", None)

# The snapshots of both partitions. Batch n makes version n + 1.
_SNAPSHOTS = f"checkpoint/state/0/*/{SNAPSHOT_BATCH + 1:019}-*.snapshot.arrow"
_STATE_STORE = "spark.sql.streaming.stateStore"
# Key -> number of rows, sum, and the greatest pair of text and number.
State = dict[str | None, tuple[int, Decimal, tuple[str, int]]]


def rows_of(batch: int) -> list[tuple[str | None, int]]:
    """The rows of a batch. A batch has a row of each key, except the key at place `batch % 4`."""
    return [(key, 10 * batch + place) for place, key in enumerate(KEYS) if place != batch % 4]


def state_after(batch: int) -> State:
    """The content of the store after a batch."""
    state: State = {}
    for key, number in (row for earlier in range(batch + 1) for row in rows_of(earlier)):
        count, total, _ = state.get(key, (0, Decimal(0), ("", 0)))
        state[key] = (count + 1, total + number, (f"n{number:03}", number))
    return state


def write(spark: SparkSession, folder: Path, checkpoint_format: int) -> None:
    """Write the checkpoint of one format into `folder`."""
    spark.conf.set(f"{_STATE_STORE}.checkpointFormatVersion", str(checkpoint_format))
    spark.conf.set(f"{_STATE_STORE}.rowChecksum.enabled", str(checkpoint_format == 2).lower())
    with tempfile.TemporaryDirectory() as scratch:
        _run_batches(spark, Path(scratch), checkpoint_format)
        for name in KEPT:
            written = Path(scratch) / "checkpoint" / name
            if written.is_dir():
                ignored = shutil.ignore_patterns("*.crc")
                shutil.copytree(written, folder / name, ignore=ignored)
            else:
                shutil.copy(written, folder / name)


def _run_batches(spark: SparkSession, scratch: Path, checkpoint_format: int) -> None:
    source = scratch / "input"
    source.mkdir()
    schema = pa.schema([("key", pa.string()), ("number", pa.int64())])
    for batch in range(BATCHES):
        rows = [{"key": key, "number": number} for key, number in rows_of(batch)]
        pq.write_table(pa.Table.from_pylist(rows, schema), source / f"{batch}.parquet")
        # Every batch is a run of its own. The run of SNAPSHOT_BATCH waits for the snapshot, which
        # is due when the batch has committed, and not when its state is loaded.
        has_snapshot = batch == SNAPSHOT_BATCH
        deltas = SNAPSHOT_BATCH + 1 if has_snapshot else 100
        spark.conf.set(f"{_STATE_STORE}.minDeltasForSnapshot", str(deltas))
        events = spark.readStream.schema("key string, number bigint").parquet(str(source))
        pair = F.struct(F.format_string("n%03d", "number").alias("text"), "number")
        query = (
            events.groupBy("key")
            .agg(
                F.count("*").alias("rows"),
                F.sum(F.col("number").cast("decimal(20,2)")).alias("total"),
                F.max(pair).alias("greatest"),
            )
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            while has_snapshot and len([*scratch.glob(_SNAPSHOTS)]) < 2:
                assert not query.awaitTermination(1)
        finally:
            query.stop()


def main(folder: Path) -> None:
    builder = spark_state.configure(SparkSession.builder.master("local[2]"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        f"{_STATE_STORE}.maintenanceInterval": "100ms",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for checkpoint_format in FORMATS:
        target = folder / "provider" / f"format-{checkpoint_format}"
        target.mkdir(parents=True)
        write(spark, target, checkpoint_format)
    rescaled = folder / "provider" / "format-2-rescaled"
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(folder / "provider" / "format-2", scratch, dirs_exist_ok=True)
        assert command(["rescale", scratch, "--partitions", "3", "--apply", "--force"]) == 0
        shutil.copytree(
            scratch, rescaled, ignore=shutil.ignore_patterns("*.crc", "_cowstate_rescale")
        )
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
