"""Runs Spark's own Python tests of transformWithState in sessions with cowstate enabled.

    python -m scripts.spark_python_suites [--spark VERSION] [--source DIRECTORY] [--suites REGEX]

The tests come from Spark's repository: the tests of the row API, of the pandas API and of
TwsTester. PyPI and Maven Central do not have these tests. The script clones the tag of the version
with git, or `--source` names a checkout. PySpark of another version than the installed version runs
in an environment of the provider's matrix. Every test must pass, but for the tests in
`expected.toml`, which must fail. The exit status is 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from scripts.provider_matrix import SPARKS, python_with
from scripts.spark_suites import reports
from scripts.spark_suites.verdicts import Outcome, Verdict, judge, read_expectations, that_ran

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).with_name("expected.toml")
REPOSITORY = "https://github.com/apache/spark"
PACKAGE = "pyspark.sql.tests.pandas.streaming"
TESTS = "python/pyspark/sql/tests"
SUITES = (
    "test_transform_with_state",
    "test_transform_with_state_checkpoint_v2",
    "test_transform_with_state_state_variable",
    "test_transform_with_state_state_variable_checkpoint_v2",
    "test_pandas_transform_with_state",
    "test_pandas_transform_with_state_checkpoint_v2",
    "test_pandas_transform_with_state_state_variable",
    "test_pandas_transform_with_state_state_variable_checkpoint_v2",
    "test_tws_tester",
)


def checkout(spark: str, repository: str) -> Path:
    """The checkout with Spark's tests of a version, below `build`. Cloned if need be."""
    folder = ROOT / "build" / "spark_python_suites" / f"v{spark}"
    if not (folder / TESTS).is_dir():
        options = ["--quiet", "--depth", "1", "--filter", "blob:none", "--sparse"]
        command = ["git", "clone", *options, "--branch", f"v{spark}", repository, str(folder)]
        subprocess.run(command, check=True)
        subprocess.run(["git", "-C", str(folder), "sparse-checkout", "set", TESTS], check=True)
    return folder


def run(python: Path, source: Path, suite: str, minutes: int) -> list[Outcome]:
    """The outcomes of a suite's tests, in a separate process and directory."""
    with tempfile.TemporaryDirectory(prefix="cowstate-suite-") as folder:
        outcomes = Path(folder) / "outcomes"
        module = "scripts.spark_python_suites.run_suite"
        command = [python, "-m", module, f"{PACKAGE}.{suite}", source / "python", outcomes]
        # Otherwise Spark starts workers and looks up data sources with `python3` of the PATH.
        interpreters = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(python))
        ended = subprocess.run(
            [*map(str, command)],
            cwd=ROOT,
            env={**os.environ, **interpreters},
            timeout=minutes * 60,
            capture_output=True,
            text=True,
        )
        lines = outcomes.read_text("utf-8").splitlines() if outcomes.exists() else []
    ended_tests = [Outcome(**json.loads(text)) for text in lines]
    if ended.returncode:
        ended_tests.append(Outcome("", "aborted", error=ended.stderr[-2_000:]))
    return ended_tests


def verdict_on(suite: str, outcomes: Sequence[Outcome]) -> Verdict:
    """The verdict on a suite. Tests are named by class and method, not by suite."""
    expected = read_expectations(EXPECTED.read_text(encoding="utf-8"))
    return judge(suite, outcomes, that_ran(expected, outcomes))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.spark_python_suites")
    parser.add_argument("--spark", default=version("pyspark"), help="the version, such as 4.3.0")
    parser.add_argument("--source", type=Path, help="a checkout of Spark of that version")
    parser.add_argument("--repository", default=REPOSITORY, help="what to clone without --source")
    parser.add_argument("--suites", default="", help="those whose names match this expression")
    parser.add_argument("--minutes", type=int, default=60, help="that a suite may take at most")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    wanted = parsed(arguments)
    minor = wanted.spark.rpartition(".")[0]
    if minor not in SPARKS:
        sys.exit(f"cowstate runs on Spark {' and '.join(SPARKS)}, and not on {wanted.spark}")
    installed = wanted.spark == version("pyspark")
    python = Path(sys.executable) if installed else python_with(minor)
    source = wanted.source or checkout(wanted.spark, wanted.repository)
    verdicts = []
    for suite in SUITES:
        if re.search(wanted.suites, suite):
            verdicts.append(verdict_on(suite, run(python, source, suite, wanted.minutes)))
            print(reports.progress(verdicts[-1], "cowstate"), flush=True)
    print(*reports.whole({"cowstate": verdicts}), sep="\n")
    if not verdicts or any(verdict.faults for verdict in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
