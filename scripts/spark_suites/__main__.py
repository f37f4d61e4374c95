"""Runs Spark's own test suites of stateful streaming on the state store provider.

    python -m scripts.spark_suites [--provider cowstate|hdfs|both] [--suites REGEX] [--tests REGEX]

Spark publishes the tests; see `spark_builds.py` for the jars of a run. Every test must pass, but
for the tests of `expected.toml`, which must fail. The exit status is 1 otherwise. `--provider both`
runs the tests on HDFSBackedStateStoreProvider, too, to compare.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence

from scripts.spark_suites import reports
from scripts.spark_suites.spark_builds import (
    HERE,
    ROOT,
    SparkBuild,
    compiled,
    lock,
    locked_versions,
    prepare,
)
from scripts.spark_suites.suite_jvm import Provider, SuiteJvm
from scripts.spark_suites.suites import SUITES, Suite
from scripts.spark_suites.verdicts import (
    TABLE,
    Expectation,
    Verdict,
    judge,
    read_expectations,
    that_ran,
)
from spark_state.jvm.scala_compiler import java_program

COWSTATE, HDFS = "cowstate", "hdfs"
SOURCES = HERE / "scala"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.spark_suites")
    parser.add_argument("--provider", choices=[COWSTATE, HDFS, "both"], default=COWSTATE)
    parser.add_argument("--spark", default=locked_versions()[-1], choices=locked_versions())
    parser.add_argument("--suites", default="", help="those whose names match this expression")
    parser.add_argument("--tests", default="", help="those whose names match this expression")
    parser.add_argument("--minutes", type=int, default=60, help="that a suite may take at most")
    parser.add_argument("--lock", metavar="VERSION", help="pin the test jars of another Spark")
    return parser.parse_args()


def providers(build: SparkBuild, name: str) -> list[Provider]:
    """The providers to run on, with the jars that redirect suites to the providers."""
    runner = compiled("runner", SOURCES / "runner", build, [])
    hdfs = Provider(HDFS, [runner], is_cowstate=False)
    if name == HDFS:
        return [hdfs]
    # Compile the provider on the installed Spark, as for a release.
    provider = compiled("provider", ROOT / "spark_state" / "jvm", None, [])
    suites = compiled("suites", SOURCES / "provider", build, [provider, runner])
    cowstate = Provider(COWSTATE, [suites, runner, provider], is_cowstate=True)
    return [cowstate] if name == COWSTATE else [cowstate, hdfs]


def run(jvm: SuiteJvm, suites: Sequence[Suite], expected: Sequence[Expectation]) -> list[Verdict]:
    """The verdicts on suites. Prints each verdict when its JVM has ended."""
    verdicts = []
    for suite in suites:
        if suite.class_for(is_cowstate=jvm.provider.is_cowstate):
            outcomes = jvm.run(suite)
            about = that_ran(expected, outcomes) if jvm.tests else expected
            verdict = judge(suite.name, outcomes, about if jvm.provider.is_cowstate else None)
            verdicts.append(verdict)
            print(reports.progress(verdict, jvm.provider.name), flush=True)
    return verdicts


def show_setting(build: SparkBuild, chosen: Sequence[Provider]) -> None:
    """Print the versions and jars of the run."""
    java = subprocess.run([java_program(), "-version"], capture_output=True, text=True, check=True)
    jars = [jar.name for provider in chosen for jar in provider.jars]
    print(f"Spark {build.version} of PyPI, on {java.stderr.splitlines()[1]}, with")
    print(*sorted({*jars, *(jar.name for jar in build.jars)}), sep=", ")


def main() -> None:
    wanted = parsed()
    if wanted.lock:
        print(f"wrote {lock(wanted.lock)}")
        return
    suites = [suite for suite in SUITES if re.search(wanted.suites, suite.name)]
    build = prepare(wanted.spark)
    chosen = providers(build, wanted.provider)
    show_setting(build, chosen)
    expected = read_expectations(TABLE.read_text(encoding="utf-8"))
    verdicts = {
        provider.name: run(
            SuiteJvm(build, provider, wanted.tests, wanted.minutes), suites, expected
        )
        for provider in chosen
    }
    print(*reports.whole(verdicts), sep="\n")
    if any(verdict.faults for of_provider in verdicts.values() for verdict in of_provider):
        sys.exit(1)


if __name__ == "__main__":
    main()
