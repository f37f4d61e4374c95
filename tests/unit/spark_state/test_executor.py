"""A state host finds the executor process to which the host belongs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DAEMON = """
import os
from spark_state.executor import executor_of_worker

if os.fork() == 0:
    # Daemons fork once more for some workers.
    if os.fork() == 0:
        print(executor_of_worker().pid, flush=True)
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
"""


@pytest.mark.process
def test_the_executor_is_above_a_daemon_of_the_users(tmp_path: Path) -> None:
    """The setting spark.python.daemon.module names the user's daemon."""
    (tmp_path / "my_daemon.py").write_text(DAEMON)
    ran = subprocess.run(
        [sys.executable, "-m", "my_daemon", "pyspark.worker"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        check=True,
    )
    assert int(ran.stdout) == os.getpid()
