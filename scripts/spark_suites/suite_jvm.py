"""Runs a suite in a separate JVM, started as in Spark's own build, and reads the outcomes.

Each run has a folder, `build/spark-suites/<provider>/<suite>`, with its outcomes, its output, and
the log of Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.spark_suites.spark_builds import BUILD, HERE, SparkBuild
from scripts.spark_suites.suites import HARNESS, LEFT_OUT, Suite
from scripts.spark_suites.verdicts import Outcome
from spark_state.jvm.scala_compiler import java_program

_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
# A suite runs for a minute, so the second compiler would cost more time than the compiler saves.
# Suites rely on assertions, and on the detection of memory that a task leaves.
_OPTIONS = (
    *("-ea", "-Xmx3g", "-Xss4m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-XX:+EnableDynamicAgentLoading", "-XX:+IgnoreUnrecognizedVMOptions"),
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    *("-Djava.awt.headless=true", "-Dderby.system.durability=test"),
    *("-Dspark.testing=1", "-Dspark.ui.enabled=false", "-Dspark.ui.showConsoleProgress=false"),
    *("-Dspark.unsafe.exceptionOnMemoryLeak=true", "-Dspark.master.rest.enabled=false"),
    "-Dio.netty.tryReflectionSetAccessible=true",
)
# Other sessions find the extensions by the jar's services. The suites' sessions do not look there.
_EXTENSIONS = "org.apache.spark.sql.execution.datasources.v2.cowstate.CowStateExtensions"
_VARIABLES = {"SPARK_TESTING": "1", "SPARK_SCALA_VERSION": "2.13"}


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that suites run on. `jars`: jars that come before Spark's jars and the tests."""

    name: str
    jars: Sequence[Path]
    is_cowstate: bool


@dataclass(frozen=True, slots=True)
class SuiteJvm:
    """Settings of a run of suites: Spark, provider, a pattern of tests, and a time limit for a
    suite."""

    build: SparkBuild
    provider: Provider
    tests: str
    minutes: int

    def run(self, suite: Suite) -> list[Outcome]:
        """The outcomes of a suite, in order. If the JVM ends with an error, or not within the time
        limit, the last outcome is "aborted"."""
        folder = BUILD / self.provider.name / suite.name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        outcomes = folder / "outcomes.jsonl"
        end = self._ended(self._command(suite, folder, outcomes), folder)
        shutil.rmtree(folder / "tmp")
        ended = read_outcomes(outcomes.read_text()) if outcomes.exists() else []
        return [*ended, Outcome("", "aborted", error=f"{end}, see {folder}")] if end else ended

    def _command(self, suite: Suite, folder: Path, outcomes: Path) -> list[str]:
        classpath = os.pathsep.join(self.build.classpath(self.provider.jars))
        own = [
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Dspark.test.home={folder}",
            f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        ]
        if self.provider.is_cowstate:
            own.append(f"-Dspark.sql.extensions={_EXTENSIONS}")
        name = suite.class_for(is_cowstate=self.provider.is_cowstate)
        chosen = [LEFT_OUT, *([self.tests] if self.tests else [])]
        program = [f"{HARNESS}.SuiteRun", name, str(outcomes), *chosen]
        return [java_program(), *_OPTIONS, *own, "-cp", classpath, *program]

    def _ended(self, command: Sequence[str], folder: Path) -> str:
        """The end of the JVM in words; empty if the JVM ended well."""
        variables = os.environ | _VARIABLES | {"SPARK_HOME": str(self.build.spark_jars.parent)}
        with (folder / "output.txt").open("wb") as output:
            try:
                run = subprocess.run(
                    command, cwd=folder, env=variables, stdout=output, stderr=output,
                    timeout=self.minutes * 60, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"the JVM did not end within {self.minutes} minutes"
        return f"the JVM ended with status {run.returncode}" if run.returncode else ""


def read_outcomes(lines: str) -> list[Outcome]:
    """Read the outcomes that a JVM wrote. The JVM may have been killed within its last line."""
    whole = lines[: lines.rfind("\n") + 1]
    return [Outcome(**json.loads(line)) for line in whole.splitlines()]
