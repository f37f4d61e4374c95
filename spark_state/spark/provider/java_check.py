"""Says why Spark's JVM does not start, if the reason is Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_OLDEST = 17
# Java 8 is `1.8.0_292`, later versions are `11.0.2`, `17` or `25-ea`.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_problem() -> str | None:
    """The reason why the Java of this machine cannot run Spark, with the way out. None if Java is
    there, and is not too old. Looks where Spark looks: in JAVA_HOME, or else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        return f"there is no Java {where}: install Java {_OLDEST} or newer, and set JAVA_HOME"
    told = subprocess.run((java, "-version"), capture_output=True, text=True, check=False)
    version = _VERSION.search(told.stderr)
    if version is None or int(version[1]) >= _OLDEST:
        return None
    return (
        f"{java} is Java {version[1]}, and Spark needs Java {_OLDEST} or newer: install it, and "
        "set JAVA_HOME"
    )
