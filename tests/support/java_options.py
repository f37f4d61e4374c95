"""How tests start JVMs. They live short: one compiler, one collector, classes from an archive.

`tests/support/class_archive.py` writes the archive. A JVM to which it does not belong, for it is of
another Java or another Spark, loads its classes as ever. So does every JVM while there is none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# What a JVM says of itself would go to its output, where programs write their own.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_SILENT}"
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
JAVA_OPTIONS = f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}"
# Spark's scripts pass this to the JVM of every driver.
DRIVER_OPTIONS = "SPARK_SUBMIT_OPTS"


def set_java_options(options: str = JAVA_OPTIONS) -> None:
    """For the drivers that this process and its children start from now on."""
    os.environ[DRIVER_OPTIONS] = options
