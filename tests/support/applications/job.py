"""A whole application, for tests that need a driver of their own.

    python -m tests.support.applications.job FOLDER …

The application runs the stream in FOLDER until all input is processed, and stops. Tests feed the
folder before, kill the driver, executors or hosts meanwhile, and read the sink afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from spark_state.spark.session.store_options import REDACTION_KEY, REDACTION_OF_SPARK
from tests.support.applications.streams import Stream
from tests.support.processors.processors import KillingOnce, RunningTotals, Speaking
from tests.support.sessions.spark_session import start_spark, stop_spark


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--parallelism", default="2")
    parser.add_argument("--kill", choices=("host", "executor"))
    parser.add_argument("--store")
    parser.add_argument("--store-options", type=json.loads, default={})
    parser.add_argument("--speak", action="store_true")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if arguments.store_options:
        # Spark reads the redaction pattern when the JVM starts.
        os.environ["JAVA_TOOL_OPTIONS"] = f"-D{REDACTION_KEY}={REDACTION_OF_SPARK}|storeOptions"
    spark = start_spark(arguments.master, arguments.folder)
    spark.conf.set("spark.cowstate.parallelism", arguments.parallelism)
    if arguments.store:
        spark.conf.set("spark.cowstate.store", arguments.store)
    for name, value in arguments.store_options.items():
        spark.conf.set(f"spark.cowstate.storeOptions.{name}", json.dumps(value))
    stream = Stream(spark, arguments.folder, settings={})
    processor: RunningTotals = RunningTotals()
    if arguments.kill:
        processor = KillingOnce(arguments.kill, arguments.folder / "killed")
    elif arguments.speak:
        processor = Speaking()
    try:
        stream.run(stream.operator(processor, name="totals"))
    finally:
        stop_spark(spark)


if __name__ == "__main__":
    main()
