"""Runs all tests of the state store provider on each supported Spark and Java.

    python -m scripts.provider_matrix [--spark 4.2 ...] [--java 17 ...] [-- arguments of pytest]

Each version of Spark has a virtual environment in build/matrix, made once, with the newest PySpark
of the version. One jar is compiled for all environments, on the Spark of the interpreter that runs
this script: the newest Spark, as for a release. JAVA_HOME_17 and JAVA_HOME_21 name the homes of
Java; without these variables an installed Java is used. The exit status is 1 if a test failed
anywhere.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "matrix"
SPARKS = ("4.2", "4.3")
JAVAS = (17, 21)
INSTALLED = Path("/usr/lib/jvm")
TESTS = (
    "tests/spark/adoption/test_*.py",
    "tests/spark/progress/test_metrics.py",
    "tests/spark/provider/test_*.py",
    "tests/spark/queries/test_named_sources.py",
    "tests/spark/rescaling/test_*.py",
    "tests/spark/session/test_submitted_jobs.py",
    "tests/spark/stopped_query/test_*.py",
    "tests/contract/test_state_directory_contract.py",
    "tests/property/provider/test_*.py",
    "tests/fault/provider/test_*.py",
    "tests/compatibility/test_provider_checkpoints_of_version_1.py",
)
NO_TESTS_FAILED = "passed"


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of versions in which the tests run: `spark`, such as "4.2", and `java`."""

    spark: str
    java: int

    def __str__(self) -> str:
        return f"Spark {self.spark}, Java {self.java}"


def files() -> list[str]:
    found_by = {pattern: sorted(ROOT.glob(pattern)) for pattern in TESTS}
    empty = [pattern for pattern, paths in found_by.items() if not paths]
    if empty:
        sys.exit(f"no test has the name of {', '.join(empty)}")
    return [str(path.relative_to(ROOT)) for paths in found_by.values() for path in paths]


def python_with(spark: str) -> Path:
    """The interpreter of the environment with this Spark. Makes the environment if need be."""
    return python_of(f"spark-{spark}", [f"pyspark[sql]=={spark}.*"])


def python_of(name: str, replaced: Sequence[str]) -> Path:
    """The interpreter of the environment `name`. Makes the environment if need be. `replaced`:
    arguments of pip, to install packages that replace packages of cowstate's requirements."""
    environment = ENVIRONMENTS / name
    python = environment / "bin" / "python"
    made = environment / "made"
    if not made.exists():
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([*install, "-e", f"{ROOT}[dev]"], check=True)
        subprocess.run([*install, *replaced], check=True)
        made.touch()
    return python


def compile_jar() -> None:
    """Compile the jar, which all cells use, if a source has changed."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    subprocess.run([*install, *options], check=True)


def java_home(major: int) -> Path:
    """The home of a Java of this version. If there is none, exits with a message about the way
    out."""
    variable = f"JAVA_HOME_{major}"
    if variable in os.environ:
        homes = [Path(os.environ[variable])]
    else:
        homes = [Path(os.environ.get("JAVA_HOME", "")), *sorted(INSTALLED.glob("*"))]
    for home in homes:
        if major_of(home) == major:
            return home
    sys.exit(f"no Java {major} is installed: set {variable} to the home of one")


def major_of(home: Path) -> int | None:
    """The major version of the Java in the directory `home`; None if no Java runs from there."""
    try:
        run = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r'version "(\d+)', run.stderr)
    return int(version[1]) if version else None


def ran_with(cell: Cell, python: Path) -> str:
    """The full versions of Spark and Java in a cell, as Spark and Java report them."""
    program = "import pyspark; print(pyspark.__version__)"
    spark = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    java = subprocess.run(
        [java_home(cell.java) / "bin" / "java", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return f"Spark {spark.stdout.strip()}, {java.stderr.splitlines()[1]}"


def run(cell: Cell, workers: int, more: Sequence[str]) -> str:
    """Run the tests in a cell, and return the outcome in words."""
    python = python_with(cell.spark)
    variables = os.environ | {"JAVA_HOME": str(java_home(cell.java))}
    print(f"\n{cell}: {ran_with(cell, python)}", flush=True)
    # The archive of classes may be of another Java.
    (python.parents[1] / "spark-classes.jsa").unlink(missing_ok=True)
    subprocess.run(
        [python, "-m", "tests.support.sessions.class_archive"], cwd=ROOT, env=variables, check=True
    )
    pytest = [str(python), "-m", "pytest", "-q", "-n", str(workers), "--dist", "loadfile"]
    tests = subprocess.run([*pytest, *files(), *more], cwd=ROOT, env=variables, check=False)
    return f"failed with status {tests.returncode}" if tests.returncode else NO_TESTS_FAILED


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.provider_matrix")
    parser.add_argument("--spark", nargs="+", default=SPARKS, choices=SPARKS)
    parser.add_argument("--java", nargs="+", type=int, default=JAVAS, choices=JAVAS)
    parser.add_argument("--workers", type=int, default=2, help="that run tests at once")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    wanted = parser.parse_args()
    compile_jar()
    ends = {
        cell: run(cell, wanted.workers, wanted.pytest)
        for cell in (Cell(*pair) for pair in product(wanted.spark, wanted.java))
    }
    print(*(f"{cell}: {end}" for cell, end in ends.items()), sep="\n")
    if set(ends.values()) != {NO_TESTS_FAILED}:
        sys.exit(1)


if __name__ == "__main__":
    main()
