"""The published wheel works in an environment where nothing else is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.sessions.java_options import DRIVER_OPTIONS, MORE_CLASSES

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(2400)]


def run(*command: str | Path, folder: Path) -> str:
    """Run a command that sees neither this environment nor the source tree, and return its
    output."""
    hidden = (
        *("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"),
        DRIVER_OPTIONS,
        MORE_CLASSES,
    )
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_the_wheel_runs_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    build = (sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path)
    run(*build, ROOT, folder=tmp_path)
    (source,) = tmp_path.glob("*.tar.gz")
    # An environment with only the build requirements of pyproject.toml.
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", source, folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "setup.cfg", "pyproject.toml", "pyspark_cowstate.py"} <= packed
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "cowstate/command_log4j2.properties",
        "pyspark_cowstate.py",
        "spark_state/jars/cowstate-provider.jar",
        *(
            f"{package}/py.typed"
            for package in ("checkpoint_store", "cowstate", "datasources", "spark_state")
        ),
    } <= names
    assert not [name for name in names if name.startswith("tests/")]

    run(sys.executable, "-m", "venv", "empty", folder=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--no-compile")
    run(*install, f"cowstate[demo] @ {wheel.as_uri()}", folder=tmp_path)
    command = (tmp_path / "empty" / "bin" / "cowstate", "demo", "--flights", "3000", "--json")
    report = json.loads(run(*command, folder=tmp_path))
    assert report["agrees_with_batch"] is True
    assert (tmp_path / "cowstate-demo").is_dir()
