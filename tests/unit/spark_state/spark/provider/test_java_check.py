"""A session without a Java that can run Spark is refused in a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_state.spark.provider.java_check import java_problem

CREATE = """
import spark_state
from pyspark.sql import SparkSession

spark_state.configure(SparkSession.builder.master("local[1]")).getOrCreate()
"""


def java_home(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java tells its version, and cannot start a class."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020' >&2\nexit 1\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "11"), ("1.8.0_292", "8"), ("16", "16")])
def test_an_old_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, told: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    problem = java_problem()
    assert problem is not None
    assert problem.startswith(f"{tmp_path}/bin/java is Java {told}, and Spark needs Java 17")


@pytest.mark.parametrize("version", ["17.0.9", "21", "25-ea"])
def test_another_java_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, version)))
    assert java_problem() is None


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert problem.startswith("there is no Java on the PATH, and JAVA_HOME is not set: install")


@pytest.mark.process
def test_a_session_says_so_in_its_last_line(tmp_path: Path) -> None:
    without, old = tmp_path / "without", java_home(tmp_path / "old", "11.0.2")
    for home, told in ((without, f"there is no Java in JAVA_HOME={without}"), (old, "is Java 11")):
        done = subprocess.run(
            (sys.executable, "-c", CREATE),
            env={**os.environ, "JAVA_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        line = done.stderr.splitlines()[-1]
        assert line.startswith("spark_state.errors.ConfigurationError: ")
        assert told in line
        assert "The above exception" not in done.stderr
