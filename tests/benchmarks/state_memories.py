"""Places for the provider's state beyond the heap: designs against each other, in one run.

    python tests/benchmarks/state_memories.py [--keys 10000000] [--updates 450000] [--batches 12]
                                              [--words 20] [--memory 1g] [--contenders …]

Each contender has a JVM of its own without Spark. The contender loads `--keys` rows, whose values
have `--words` words of 8 bytes. Then one thread runs batches that read and write `--updates` random
rows each. `heap` has as much memory as it needs, the other contenders have `--memory`:

    heap             the paged map on the heap
    mapped           the paged map in mapped files; records change only in the newest pages
    mapped_in_place  the paged map in mapped files; records change in place
    rocksdb          the RocksDB of Spark's jars, without a write-ahead log

The benchmark prints the seconds of the load, the median and the slowest batch, and ratios to
`rocksdb`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import spark_state
from spark_state.jvm.scala_compiler import compile_jar
from tests.benchmarks.benchmark_script import STATE_PACKAGE, parser_of, run_java, write_results

SOURCE = Path(__file__).parent / "scala" / "StateMemories.scala"
MAIN = f"{STATE_PACKAGE}.cowstate.benchmarks.StateMemories"
CONTENDERS = ("heap", "mapped", "mapped_in_place", "rocksdb")
OPENED = ("java.nio", "sun.nio.ch", "java.lang")


def measure(jar: Path, contender: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds of the load, and milliseconds of the median and the slowest batch."""
    memory = "16g" if contender == "heap" else arguments.memory
    sizes = (arguments.keys, arguments.updates, arguments.batches, arguments.words)
    opened = (f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED)
    with tempfile.TemporaryDirectory(prefix="cowstate-memories-") as folder:
        printed = run_java(jar, MAIN, (contender, *sizes, folder), f"-Xmx{memory}", *opened)
    lines = [line.split() for line in printed]
    batches = [float(ms) for kind, ms in lines if kind == "batch"]
    return {
        "load_s": float(lines[0][1]) / 1_000,
        "batch_ms": statistics.median(batches),
        "slowest_batch_ms": max(batches),
    }


def main() -> None:
    """Run the contenders, print the table, write the JSON."""
    sizes = {"keys": 10_000_000, "updates": 450_000, "batches": 12, "words": 20, "memory": "1g"}
    parser = parser_of(__doc__, "state_memories", **sizes)
    parser.add_argument("--contenders", nargs="*", default=CONTENDERS, choices=CONTENDERS)
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cowstate-memories-") as folder:
        jar = Path(folder) / "benchmark.jar"
        compile_jar([SOURCE], jar, classpath=[Path(spark_state.jar_path())])
        for contender in arguments.contenders:
            result[contender] = measure(jar, contender, arguments)
            print(f"{contender}: {result[contender]}", file=sys.stderr)
    peer = result.get("rocksdb", {}).get("batch_ms")
    print(f"{'contender':17}{'load s':>9}{'batch ms':>10}{'slowest':>9}{': rocksdb':>11}")
    for contender, figures in result.items():
        ratio = f"{figures['batch_ms'] / peer:.2f}" if peer else ""
        print(
            f"{contender:17}{figures['load_s']:9.1f}{figures['batch_ms']:10.0f}"
            f"{figures['slowest_batch_ms']:9.0f}{ratio:>11}"
        )
    write_results(arguments.out, result)


if __name__ == "__main__":
    main()
