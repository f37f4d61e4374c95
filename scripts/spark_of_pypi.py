"""The jars of a version of Spark, which PySpark ships, without an environment for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def spark_of_pypi(version: str, folder: Path) -> Path:
    """The directory of the jars in `folder`, where PySpark is unpacked whole or not at all."""
    if not folder.exists():
        unfinished = folder.with_name(f".{folder.name}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        subprocess.run([*command, "--target", str(unfinished), f"pyspark=={version}"], check=True)
        unfinished.replace(folder)
    return folder / "pyspark" / "jars"
