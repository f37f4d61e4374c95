"""Jobs work though their driver runs another interpreter than the `python3` of the PATH."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

from tests.support.sessions import python_path

pytestmark = pytest.mark.spark

JOB = Path(__file__).resolve().parents[2] / "support" / "applications" / "interpreter_job.py"
COUNTED = "counted [('a', 2), ('b', 1)]"


def interpreter(path: Path, script: str) -> Path:
    """Write an interpreter that a shell script starts."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def bare_interpreter(folder: Path) -> Path:
    """Write a python3 without any package."""
    return interpreter(folder / "bin" / "python3", f'exec {sys.executable} -S "$@"')


def interpreter_without_cowstate(folder: Path) -> Path:
    """Write an interpreter with all packages, but without cowstate if WITHOUT_COWSTATE is set, as
    on an executor. An editable installation adds cowstate when `site` starts."""
    packages = Path(pyspark.__file__).resolve().parents[1]
    return interpreter(
        folder / "some" / "python",
        f'test -z "$WITHOUT_COWSTATE" && exec {sys.executable} "$@"\n'
        f'export PYTHONPATH="$PYTHONPATH:{packages}"\n'
        f'exec {sys.executable} -S "$@"',
    )


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the job in `folder`, where no module of this project is found by accident."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYSPARK_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    inherited["PYTHONPATH"] = python_path.FOLDER
    return subprocess.run(
        [sys.executable, str(JOB), str(folder), *arguments],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


# An unnamed master goes through `configure`, so this master represents both.
@pytest.mark.parametrize(
    "arguments",
    [("plain", "operator", "table"), ("unnamed", "table", "operator")],
    ids=lambda arguments: arguments[0],
)
def test_without_an_activated_environment_a_local_job_runs(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = f"{bare_interpreter(tmp_path).parent}:{os.environ['PATH']}"
    done = run(tmp_path, *arguments, PATH=path)
    assert done.returncode == 0, done.stderr
    assert COUNTED in done.stdout
    assert "read 3" in done.stdout


def test_an_interpreter_that_the_user_chose_is_kept_and_told_from_the_drivers(
    tmp_path: Path,
) -> None:
    chosen = interpreter_without_cowstate(tmp_path)
    done = run(tmp_path, "plain", "operator", PYSPARK_PYTHON=str(chosen), WITHOUT_COWSTATE="1")
    assert "operator failed: " in done.stdout
    assert f"the driver runs {sys.executable}" in done.stdout
    assert "this Python worker runs" in done.stdout


def test_an_executor_whose_interpreter_lacks_cowstate_names_both_interpreters(
    tmp_path: Path,
) -> None:
    chosen = interpreter_without_cowstate(tmp_path)
    steps = ("operator", "table", "stream")
    done = run(tmp_path, "plain", *steps, "--executor-lacks-cowstate", PYSPARK_PYTHON=str(chosen))
    assert done.returncode == 0, done.stderr
    _, *failures = re.split(r"^(?:operator|table|stream) failed: ", done.stdout, flags=re.M)
    assert len(failures) == len(steps), done.stdout
    for failure in failures:
        assert "this Python worker runs" in failure
        assert f"the driver runs {sys.executable}" in failure
        assert f" -m pip install cowstate=={version('cowstate')}` on every machine" in failure
