"""How tests start JVMs. They live short: one compiler, one collector, classes from an archive.

`tests/support/sessions/class_archive.py` writes the archive. A JVM to which it does not belong, for
it is of another Java or another Spark, loads its classes as ever. So does every JVM while there is
none.

Spark sends all of Hadoop's settings with each task. Hadoop has more than a thousand defaults, most
of them for clusters and stores that no test has. `tests/support/sessions/hadoop_defaults.py` writes
a jar with the few that local files need. One of them names classes for local files that run no
process for each permission (`tests/support/sessions/local_files`), which are in a jar of their own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# What a JVM says of itself would go to its output, where programs write their own.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_SILENT}"
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Java looks here first for the defaults of Hadoop.
FEW_DEFAULTS = Path(sys.prefix) / "hadoop-defaults.jar"
LOCAL_FILES = Path(sys.prefix) / "local-files.jar"
_SMALL = f"{SHORT_LIVED} -Xbootclasspath/a:{FEW_DEFAULTS}"
WRITES_ARCHIVE = f"{_SMALL} -XX:ArchiveClassesAtExit={ARCHIVE}"
JAVA_OPTIONS = f"{_SMALL} -XX:SharedArchiveFile={ARCHIVE}"
# Spark's scripts pass this to the JVM of every driver.
DRIVER_OPTIONS = "SPARK_SUBMIT_OPTS"
# They add this to the classes of every driver and executor.
MORE_CLASSES = "SPARK_DIST_CLASSPATH"


def set_java_options(options: str = JAVA_OPTIONS) -> None:
    """For the drivers that this process and its children start from now on."""
    os.environ[DRIVER_OPTIONS] = options
    os.environ[MORE_CLASSES] = str(LOCAL_FILES)
