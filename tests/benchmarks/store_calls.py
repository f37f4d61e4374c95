"""Calls of Spark's stateful operators to a state store, counted, and which calls are repeated.

    python tests/benchmarks/store_calls.py [--rows 3000] [--keys 600] [--batches 4]

Runs the queries of the provider's tests, each with Spark's plan of a batch and with the plan that
the provider changes (`…cowstate.changePlans`). Input are `--batches` batches of `--rows` events
over about `--keys` keys. A provider between Spark and cowstate counts the calls of the last batch:

    calls    calls for each 1,000 input rows
    rows     rows that the calls gave, for each 1,000 input rows
    again    share of the calls whose key had the same call before in the batch
    known    share of the calls whose key had any call before in the batch
    last     share of the calls whose key had the call right before

Calls that no operator makes do not show. The counts do not depend on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import spark_state
from spark_state.jvm.scala_compiler import compile_jar
from tests.benchmarks.benchmark_script import QUIET, STATE_PACKAGE, parser_of, write_results
from tests.support.provider.operator_jobs import all_jobs
from tests.support.provider.provider_inputs import EventShape, write_batches
from tests.support.provider.provider_jobs import STATE_STORE, THROUGH_MANAGER, Job, ProviderRun
from tests.support.provider.provider_jvm import ProviderJvm, scripts_jar

SOURCE = Path(__file__).parent / "scala" / "CountingStateStoreProvider.scala"
COUNTING = f"{STATE_PACKAGE}.benchmark.CountingStateStoreProvider"
QUERIES = (
    "aggregation, update",
    "aggregation, complete",
    "aggregation, append with eviction",
    "dropDuplicates",
    "dropDuplicates with eviction",
    "dropDuplicatesWithinWatermark",
    "session windows",
    "inner join",
    "left outer join",
    "flatMapGroupsWithState, event time",
    "applyInPandasWithState",
    "limit",
)
PLANS = {"Spark's plan": "false", "changed plan": "true"}


@dataclass(frozen=True, slots=True)
class Calls:
    """A count of one call in the last batch of a query; see the module."""

    store: str
    call: str
    calls: int
    again: int
    known: int
    last: int
    rows: int


def start_session(jar: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("store_calls")
    builder = builder.config("spark.jars", str(jar)).config("spark.sql.shuffle.partitions", "2")
    builder = builder.config(map={**QUIET, "spark.sql.session.timeZone": "UTC"})
    return spark_state.configure(builder).getOrCreate()


def calls_of(spark: SparkSession, job: Job, plan: str, folder: Path, inputs: Path) -> list[Calls]:
    """Run a query over all files, and return the counts of the batch of the last file."""
    settings = {**THROUGH_MANAGER, f"{STATE_STORE}.cowstate.changePlans": PLANS[plan]}
    left, right = (sorted((inputs / side).iterdir()) for side in ("left", "right"))
    counter: Any = getattr(spark._jvm, f"{STATE_PACKAGE}.benchmark.StoreCalls")
    counter.take()
    ProviderRun(spark, job, COUNTING, folder, settings).run(left, right)
    counts = []
    for line in counter.take().splitlines():
        batch, _, store, call, *numbers = line.split()
        if int(batch) == len(left) - 1:
            counts.append(Calls(store, call, *map(int, numbers)))
    return counts


def print_query(name: str, by_plan: dict[str, list[Calls]], rows: int) -> None:
    print(f"\n{name}")
    for plan, counts in by_plan.items():
        print(f"  {plan:43} {'calls':>7} {'rows':>7} {'again':>7} {'known':>7} {'last':>7}")
        for count in counts:
            numbers = [f"{number * 1000 / rows:7.0f}" for number in (count.calls, count.rows)]
            of_key = (count.again, count.known, count.last)
            numbers += [f"{number / count.calls:7.2f}" for number in of_key]
            print(f"    {count.store:28} {count.call:12} {' '.join(numbers)}")


def main() -> None:
    """Count, print, and write the JSON."""
    given = arguments()
    result: dict[str, Any] = {"rows": given.rows, "keys": given.keys}
    with tempfile.TemporaryDirectory(prefix="cowstate-benchmark-") as name:
        root = Path(name)
        jar = root / "counting.jar"
        compile_jar([SOURCE], jar, classpath=[Path(spark_state.jar_path())])
        spark = start_session(jar)
        jobs = all_jobs(spark, ProviderJvm(spark, scripts_jar()))
        for seed, side in enumerate(("left", "right")):
            shape = EventShape(given.rows, given.keys)
            write_batches(root / "inputs" / side, seed, given.batches, shape)
        for query in QUERIES:
            by_plan = {
                plan: calls_of(spark, jobs[query][0], plan, root / query / plan, root / "inputs")
                for plan in PLANS
            }
            print_query(query, by_plan, given.rows * (2 if "join" in query else 1))
            result[query] = {plan: [*map(asdict, calls)] for plan, calls in by_plan.items()}
        spark.stop()
    write_results(given.out, result)


def arguments() -> argparse.Namespace:
    return parser_of(__doc__, "store_calls", rows=3_000, keys=600, batches=4).parse_args()


if __name__ == "__main__":
    main()
