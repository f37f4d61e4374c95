"""Gets the jars of a Spark version from PySpark on PyPI, without an environment for the version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def spark_of_pypi(version: str, folder: Path) -> Path:
    """The directory of the jars in `folder`. PySpark is unpacked in `folder`, whole or not at
    all."""
    if not folder.exists():
        unfinished = folder.with_name(f".{folder.name}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        subprocess.run([*command, "--target", str(unfinished), f"pyspark=={version}"], check=True)
        unfinished.replace(folder)
    return folder / "pyspark" / "jars"
