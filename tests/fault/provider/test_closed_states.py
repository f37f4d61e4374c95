"""Closing a state in mapped files while threads use the state gives errors and never ends the JVM.

Reading memory that is no longer mapped would end the JVM, and an executor with it. So the test runs
in a separate JVM.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

import spark_state
from spark_state.jvm.scala_compiler import spark_jars
from tests.support.provider.provider_jvm import SCRIPTS, scripts_jar

pytestmark = pytest.mark.fault
# The option with which Spark's launcher opens the package to Java.
OPENED = "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"


def closed_at_random(directory: Path, seed: int, states: int) -> subprocess.CompletedProcess[str]:
    jars = [str(scripts_jar()), spark_state.jar_path(), str(spark_jars() / "*")]
    java = ["java", OPENED, "-Xmx256m", f"-XX:ErrorFile={directory / 'crash.log'}"]
    program = ["-cp", os.pathsep.join(jars), f"{SCRIPTS}.ClosingStress"]
    command = [*java, *program, str(directory), str(seed), str(states)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)


def test_a_state_that_is_closed_at_any_moment_is_an_error_for_who_uses_it(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    ended = closed_at_random(tmp_path, seed, states=60)
    told = f"seed {seed}: exit status {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    assert (ended.returncode, ended.stdout) == (0, "every state was closed\n"), told
