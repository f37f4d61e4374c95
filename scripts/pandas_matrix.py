"""Runs the tests that depend on pandas on each supported pandas.

    python -m scripts.pandas_matrix [--pandas 3 ...] [-- arguments of pytest]

Each version of pandas has a virtual environment in build/matrix, made once, with the newest release
of the version. The exit status is 1 if a test failed in any environment.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from scripts.provider_matrix import ROOT, python_of

PANDAS = ("2", "3")
TESTS = (
    "tests/unit/spark_state/codecs/test_output_codecs.py",
    "tests/unit/spark_state/codecs/test_state_codecs.py",
    "tests/unit/spark_state/processor/test_pandas_frames.py",
    "tests/unit/spark_state/processor/test_output_rows.py",
    "tests/unit/spark_state/test_serializers.py",
    "tests/property/spark_state/test_pandas_conversions.py",
    "tests/spark/operator/test_conversions.py",
    "tests/spark/operator/test_enable.py",
    "tests/spark/operator/test_initial_state.py",
    "tests/spark/operator/test_intervals.py",
)


def python_with(pandas: str) -> Path:
    """The interpreter of the environment with this pandas. Makes the environment if need be."""
    # Without requirements, because cowstate's own requirements hold pandas below 3.
    return python_of(f"pandas-{pandas}", ["--no-deps", f"pandas=={pandas}.*"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.pandas_matrix")
    parser.add_argument("--pandas", nargs="+", default=PANDAS, choices=PANDAS)
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    wanted = parser.parse_args()
    failed = False
    for pandas in wanted.pandas:
        print(f"pandas {pandas}", flush=True)
        command = [str(python_with(pandas)), "-m", "pytest", "-q", *TESTS, *wanted.pytest]
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
