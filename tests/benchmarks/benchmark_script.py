"""Command lines, processes and results of the benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import spark_state
from spark_state.jvm.scala_compiler import spark_jars

STATE_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",
}


def parser_of(doc: str, name: str, **defaults: float | str) -> argparse.ArgumentParser:
    """A parser with the first line of a script's documentation, the option --out, and an option for
    each default."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    default = Path(__file__).resolve().parent / "results" / f"{name}.json"
    parser.add_argument("--out", type=Path, default=default)
    for option, value in defaults.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(value), default=value)
    return parser


def write_results(out: Path, results: object) -> None:
    """Write the results as JSON, and say where."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2))
    print(f"written to {out}")


def run_java(
    jar: Path, main: str, arguments: Iterable[object], *options: str, **environment: str
) -> list[str]:
    """The lines that a program of a jar prints. Spark and spark_state are on the class path. Raises
    SystemExit if the program fails."""
    classpath = os.pathsep.join([str(jar), spark_state.jar_path(), str(spark_jars() / "*")])
    command = ["java", *options, "-cp", classpath, main, *map(str, arguments)]
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise SystemExit(run.stderr)
    return run.stdout.splitlines()


def state_hosts() -> Iterator[psutil.Process]:
    """The processes of all state hosts."""
    for process in psutil.process_iter():
        try:
            if "spark_state.host.server" in process.cmdline():
                yield process
        except psutil.Error:
            continue


def kill_session(spark: SparkSession, scratch: Path) -> None:
    """Kill the JVM: RocksDB's maintenance would keep the JVM alive for minutes. No query runs
    now."""
    gateway: Any = spark.sparkContext._gateway
    gateway.proc.kill()
    gateway.proc.wait()
    shutil.rmtree(scratch, ignore_errors=True)


def subplots(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes, for a file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=size, layout="constrained")
