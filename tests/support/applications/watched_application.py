"""An application whose metrics somebody watches: watched_application.py FOLDER PORT.

Two queries run until the application is killed: an operator of cowstate, and an aggregation over
windows on the provider.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_state
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    builder = (
        spark_state.configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.cowstate.store", (folder / "store").as_uri())
    )
    spark = builder.getOrCreate()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    keyed = rows.select(F.concat(F.lit("key"), F.col("value") % 7).alias("key"), "value")
    outputs = {
        "operator": spark_state.transform_with_state(
            keyed.groupBy("key"), RunningTotals(), TOTALS_SCHEMA, "update", "None", name="totals"
        ),
        "aggregation": rows.withWatermark("timestamp", "5 seconds")
        .groupBy(F.window("timestamp", "2 seconds"))
        .count(),
    }
    for name, output in outputs.items():
        writer = output.writeStream.format("noop").outputMode("update").queryName(name)
        writer.option("checkpointLocation", str(folder / name)).start()
    spark_state.serve_metrics(spark, port)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
