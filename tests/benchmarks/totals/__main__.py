"""Count and sum of each key: cowstate beside Bytewax and Pathway.

    python -m tests.benchmarks.totals [--engines cowstate bytewax …] [--rows 2000000]
                                      [--keys 44000] [--files 20] [--batch 1 4] [--warm 4]
                                      [--rounds 3] [--python PATH] [--out FILE]

All engines read the same CSV files, on two cores. Before any time counts, the totals of all keys
are compared with totals computed here.

    cowstate           a processor in Python that gets the rows of a key, heap backend
    cowstate_arrow     a processor of whole Arrow batches
    cowstate_provider  an aggregation of Spark on the state store provider
    bytewax            a stateful map in two processes, with recovery and a snapshot each second
    pathway            a reduction in Rust, two threads, without recovery

The queries on Spark have `--batch` files in a batch, and read `--warm` files before they are
measured. The figures of Bytewax and Pathway begin with the first row, so no start is in any figure.
Bytewax and Pathway are extras: `--python` names an interpreter that has them (`pip install bytewax
pathway`). An engine that is not there is left out, with a message.

The benchmark prints rows a second, rows a second and core (CPU seconds of all processes), as the
medians of the rounds, and the ratios to `bytewax`, or to the first engine without it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.benchmarks.totals.figures import Totals
from tests.benchmarks.totals.in_spark import PLANS

HERE = Path(__file__).resolve().parent
OTHERS = ("bytewax", "pathway")
LARGEST_VALUE = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows a second, and rows a second and core."""

    rows_per_second: float
    rows_per_core: float


def write_files(folder: Path, arguments: Any) -> Totals:
    """Write the files. Returns the totals of each key."""
    chance, counts, sums = random.Random(1), Counter[str](), Counter[str]()
    for number in range(arguments.files):
        with (folder / f"{number:04d}.csv").open("w") as file:
            file.write("key,value\n")
            for _ in range(arguments.rows // arguments.files):
                key = f"key{chance.randrange(arguments.keys):07d}"
                value = chance.randrange(LARGEST_VALUE)
                counts[key] += 1
                sums[key] += value
                file.write(f"{key},{value}\n")
    return {key: (count, sums[key]) for key, count in counts.items()}


def commands(engine: str, files_of_batch: int, source: Path, folder: Path, given: Any) -> list[str]:
    """The command that runs an engine."""
    if engine in PLANS:
        module = "tests.benchmarks.totals.in_spark"
        numbers = [str(files_of_batch), str(given.warm)]
        return [sys.executable, "-m", module, engine, str(source), str(folder), *numbers]
    if engine == "pathway":
        return [given.python, str(HERE / "in_pathway.py"), str(source), str(folder)]
    recovery = folder / "recovery"
    recovery.mkdir()
    prepare = [given.python, "-m", "bytewax.recovery", str(recovery), "2"]
    subprocess.run(prepare, check=True, capture_output=True)
    run = [given.python, "-m", "bytewax.testing", "in_bytewax:flow", "-p", "2"]
    return [*run, "-r", str(recovery), "-s", "1", "-b", "0"]


def measure(
    engine: str, files_of_batch: int, source: Path, expected: Totals, given: Any
) -> Measured:
    """Run an engine once. Raises SystemExit if the engine fails or its totals are wrong."""
    with tempfile.TemporaryDirectory(prefix="cowstate-totals-") as name:
        folder = Path(name)
        own = Path(shutil.copytree(source, folder / "input"))
        paths = {"TOTALS_INPUT": str(own), "TOTALS_OUTPUT": name, "PATHWAY_THREADS": "2"}
        in_here = {} if engine in PLANS else {"PYTHONPATH": str(HERE)}
        command = commands(engine, files_of_batch, own, folder, given)
        done = subprocess.run(
            command,
            env={**os.environ, **paths, **in_here},
            cwd=None if engine in PLANS else HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{engine}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        parts = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    totals = {key: tuple(pair) for part in parts for key, pair in part["totals"].items()}
    wrong = sum(totals.get(key) != pair for key, pair in expected.items())
    if wrong or len(totals) != len(expected):
        raise SystemExit(f"{engine}: {wrong} of {len(expected)} totals are wrong")
    seconds = max(part["ended"] for part in parts) - min(p["began"] for p in parts if p["began"])
    files = given.files - (given.warm if engine in PLANS else 0)
    rows = given.rows // given.files * files
    return Measured(rows / seconds, rows / sum(part["cpu_s"] for part in parts))


def is_there(engine: str, python: str) -> bool:
    if engine in PLANS:
        return True
    found = subprocess.run([python, "-c", f"import {engine}"], capture_output=True, check=False)
    if found.returncode:
        print(f"{engine} is left out: {python} does not have it (pip install {engine}; --python)")
    return not found.returncode


def main() -> None:
    defaults = {"rows": 2_000_000, "keys": 44_000, "files": 20, "warm": 4, "rounds": 3}
    parser = parser_of(__doc__, "totals", **defaults)
    parser.add_argument("--engines", nargs="*", default=[*PLANS, *OTHERS])
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    runs = [
        (engine, size)
        for engine in given.engines
        if is_there(engine, given.python)
        for size in (given.batch if engine in PLANS else given.batch[:1])
    ]
    results: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="cowstate-totals-") as name:
        expected = write_files(Path(name), given)
        for _ in range(given.rounds):
            for engine, size in runs:
                rows = given.rows // given.files * size
                label = f"{engine}, {rows:,} rows a batch" if engine in PLANS else engine
                measured = measure(engine, size, Path(name), expected, given)
                results.setdefault(label, []).append(measured)
    peer = results.get("bytewax") or next(iter(results.values()))
    for label, rounds in results.items():
        shown = []
        for figure in ("rows_per_second", "rows_per_core"):
            figures = [getattr(each, figure) for each in rounds]
            ratio = statistics.median(
                own / getattr(other, figure) for own, other in zip(figures, peer, strict=True)
            )
            shown.append(f"{statistics.median(figures):>12,.0f} ({ratio:.2f})")
        print(f"{label:45} rows/s {shown[0]}  rows/s/core {shown[1]}")
    write_results(
        given.out,
        {
            label: [(each.rows_per_second, each.rows_per_core) for each in rounds]
            for label, rounds in results.items()
        },
    )


if __name__ == "__main__":
    main()
