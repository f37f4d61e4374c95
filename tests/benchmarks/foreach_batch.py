"""Cost of completing an epoch between a foreachBatch function and Spark's commit.

    python tests/benchmarks/foreach_batch.py [--batches 12] [--rows 20000] [--out FILE]

Three queries with the same operator read the same files, and take turns batch by batch:

    unseen   the function takes all rows; cowstate does not see it, like a Scala function: the floor
    all      the same function, seen: cowstate asks the store if the epoch is complete
    none     a function that takes no rows, seen: cowstate runs the operator for the function

The benchmark prints medians of Spark's time for a batch (`addBatch`), in milliseconds, and ratios
to `unseen`. In `none`, cowstate runs the work that the function runs in the other two queries.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.support.applications.streams import Stream, random_rows
from tests.support.sessions.spark_session import start_spark, stop_spark

WARM = 3


def take_all(batch: DataFrame, _epoch: int) -> None:
    batch.write.format("noop").mode("append").save()


def take_none(_batch: DataFrame, _epoch: int) -> None:
    pass


def main() -> None:
    given = parser_of(__doc__, "foreach_batch", batches=12, rows=20_000).parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    milliseconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark("local[2]", Path(folder))
        spark.sparkContext.setLogLevel("FATAL")
        streams = {name: Stream(spark, Path(folder) / name) for name in ("unseen", "all", "none")}
        runs: dict[str, Callable[[Stream], object]] = {
            "unseen": lambda stream: stream.run_unseen(take_all),
            "all": lambda stream: stream.run(sink=take_all),
            "none": lambda stream: stream.run(sink=take_none),
        }
        for batch in range(WARM + given.batches):
            for name, stream in streams.items():
                stream.feed(random_rows(batch, given.rows, given.rows))
                query = runs[name](stream)
                took = query.recentProgress[-1].durationMs["addBatch"]
                if batch >= WARM:
                    milliseconds.setdefault(name, []).append(took)
        stop_spark(spark)
    medians = {name: statistics.median(samples) for name, samples in milliseconds.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.0f} ms, {median / medians['unseen']:.2f} of unseen")
    write_results(given.out, {"medians": medians, "batches": milliseconds})


if __name__ == "__main__":
    main()
