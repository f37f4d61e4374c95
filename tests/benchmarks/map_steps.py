"""Cost of a row in the provider's map and changelog, step by step: nanoseconds and Java bytes.

    python tests/benchmarks/map_steps.py [--keys 1000000] [--updates 250000] [--rounds 40]

One thread without Spark has a store of `--keys` keys. A key is a long, and a value is three longs.
A round draws `--updates` random keys, leaves out repeated keys, and does each step for all keys:

    rows       the row is filled, which is a part of each step below
    hash       the hash of the key
    line       a read of memory at a random place, in an array as large as the map
    copy       key and value are copied behind the row before: the minimum cost of an undo log, a
               record or a column
    zstd       one call compresses all copies: the minimum cost of compression
    contains   hash, a line of the table, and the key of the record
    prefetched hash and the key of the record, after a common search for 64 keys
    absent     a search for missing keys
    get        as `contains`, with a copy of the value
    get, prefetched  as `prefetched`, with a copy of the value
    put        the value is replaced in place, and the old value logged; all keys were read before
    put again  the same once more in the same batch, without a log entry
    put alone  as `put`, without earlier reads
    changelog  key and value go to the columns of the changelog, which are compressed every 240 KiB
    compress   the rest is compressed, and the file is ended
    create     the file is created
    write      the file is written to the system
    sync       the file is forced to the disk
    name       the file gets its name
    read back  the file is read from memory, and verified, as a restart does

The benchmark runs twice: with the system's usual memory pages, and with large pages
(-XX:+UseTransparentHugePages). It prints medians of the second half of the rounds, in nanoseconds
and in bytes that Java allocates, and ratios. The cost of a file step is also divided by the file's
rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import spark_state
from spark_state.jvm.scala_compiler import compile_jar
from tests.benchmarks.benchmark_script import STATE_PACKAGE, parser_of, run_java, write_results

SCALA = Path(__file__).parent / "scala"
SOURCES = (SCALA / "StateMemories.scala", SCALA / "MapSteps.scala")
MAIN = f"{STATE_PACKAGE}.cowstate.benchmarks.MapSteps"
JVMS = {"usual": (), "large pages": ("-XX:+UseTransparentHugePages",)}

Steps = dict[str, tuple[float, float]]


def measure(jar: Path, options: tuple[str, ...], arguments: argparse.Namespace) -> Steps:
    """Nanoseconds and allocated bytes of a row, by step."""
    sizes = (arguments.keys, arguments.updates, arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="cowstate-steps-") as folder:
        lines = run_java(jar, MAIN, (*sizes, folder), "-Xmx2g", "-Xms2g", *options)
    rounds: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        step, nanoseconds, allocated = line.split()
        figures = float(nanoseconds), float(allocated)
        rounds.setdefault(step.replace("_", " "), []).append(figures)
    return {step: medians(figures[len(figures) // 2 :]) for step, figures in rounds.items()}


def medians(figures: list[tuple[float, float]]) -> tuple[float, float]:
    nanoseconds, allocated = zip(*figures, strict=True)
    return statistics.median(nanoseconds), statistics.median(allocated)


def print_table(results: dict[str, Steps]) -> None:
    """Print each step with each JVM."""
    usual, large = results.values()
    print(f"{'step':16}{'ns':>8}{'bytes':>8}{'large pages':>14}{'ratio':>8}")
    for step, (nanoseconds, allocated) in usual.items():
        of_large, _ = large[step]
        ratio = of_large / nanoseconds
        print(f"{step:16}{nanoseconds:8.1f}{allocated:8.1f}{of_large:14.1f}{ratio:8.2f}")


def main() -> None:
    """Run both JVMs, print the table, write the JSON."""
    sizes = {"keys": 1_000_000, "updates": 250_000, "rounds": 40}
    arguments = parser_of(__doc__, "map_steps", **sizes).parse_args()
    with tempfile.TemporaryDirectory(prefix="cowstate-steps-") as folder:
        jar = Path(folder) / "benchmark.jar"
        compile_jar(SOURCES, jar, classpath=[Path(spark_state.jar_path())])
        results = {name: measure(jar, options, arguments) for name, options in JVMS.items()}
    print_table(results)
    write_results(arguments.out, results)


if __name__ == "__main__":
    main()
