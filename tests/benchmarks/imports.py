"""Cost of importing cowstate's data source in Spark's Python processes.

    python tests/benchmarks/imports.py [--rounds 9] [--out FILE]

Spark starts a Python process of its own for each read, write and stream, keeps some of the
processes for later batches, and gives each process ten seconds to connect. In every round each case
runs once in a new process, in turn:

    pyspark.sql          imports of all these processes before any data source
    pyspark_cowstate     the import with which Spark learns the format
    write, read, stream  the same, and all imports of planning, tasks and commits of one use
    write with deleteWhen    the same, and the parser of the condition

The benchmark prints medians of the process's CPU seconds, and of the seconds beyond pyspark.sql.
`pyspark_cowstate` should take at most 0.35 CPU seconds. A higher value is printed, and fails
nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from tests.benchmarks.benchmark_script import parser_of, write_results

CASES = {
    "pyspark.sql": ["pyspark.sql"],
    "pyspark_cowstate": ["pyspark.sql", "pyspark_cowstate"],
    "write": ["pyspark.sql", "pyspark_cowstate", "datasources.sink.table_sink"],
    "read": ["pyspark.sql", "pyspark_cowstate", "datasources.reads.table_source"],
    "stream": ["pyspark.sql", "pyspark_cowstate", "datasources.streams.table_stream"],
    "write with deleteWhen": [
        "pyspark.sql",
        "pyspark_cowstate",
        "datasources.sink.table_sink",
        "datasources.sink.delete_condition",
    ],
}
FLOOR, MEASURED, AT_MOST = "pyspark.sql", "pyspark_cowstate", 0.35


def cpu_seconds(modules: list[str]) -> float:
    """CPU seconds of the imports in a new process, without the start of the interpreter."""
    imports = "; ".join(f"import {module}" for module in modules)
    code = (
        f"import time; start = time.process_time(); {imports}; print(time.process_time() - start)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> None:
    given = parser_of(__doc__, "imports", rounds=9).parse_args()
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(given.rounds):
        for case, modules in CASES.items():
            seconds[case].append(cpu_seconds(modules))
    medians = {case: statistics.median(samples) for case, samples in seconds.items()}
    for case, median in medians.items():
        added = median - medians[FLOOR]
        print(f"{case}: {median:.3f} CPU s, {added:.3f} more than {FLOOR}")
    verdict = "met" if medians[MEASURED] <= AT_MOST else "MISSED"
    print(f"{MEASURED}: at most {AT_MOST} CPU s: {verdict}")
    write_results(given.out, {"medians": medians, "rounds": seconds})


if __name__ == "__main__":
    main()
