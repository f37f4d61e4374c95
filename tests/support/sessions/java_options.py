"""Options for short-lived JVMs of tests: a single compiler and collector, classes from an archive.

`tests/support/sessions/class_archive.py` writes the archive. A JVM of another Java or another Spark
cannot use the archive and loads its classes as usual. Without an archive, every JVM loads its
classes as usual.

Spark sends all of Hadoop's settings with each task. Hadoop has more than a thousand defaults, most
for clusters and stores. `tests/support/sessions/hadoop_defaults.py` writes a jar with the few
defaults for local files. The defaults name classes for local files. The classes
(`tests/support/sessions/local_files`) start no process to set permissions, and are in a separate
jar.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# JVM log messages would go to stdout, where programs write their own output.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_SILENT}"
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Java looks in this jar first for the defaults of Hadoop.
FEW_DEFAULTS = Path(sys.prefix) / "hadoop-defaults.jar"
LOCAL_FILES = Path(sys.prefix) / "local-files.jar"
_SMALL = f"{SHORT_LIVED} -Xbootclasspath/a:{FEW_DEFAULTS}"
WRITES_ARCHIVE = f"{_SMALL} -XX:ArchiveClassesAtExit={ARCHIVE}"
JAVA_OPTIONS = f"{_SMALL} -XX:SharedArchiveFile={ARCHIVE}"
# Spark's scripts pass this variable to the JVM of every driver.
DRIVER_OPTIONS = "SPARK_SUBMIT_OPTS"
# Spark's scripts add this variable to the class path of every driver and executor.
MORE_CLASSES = "SPARK_DIST_CLASSPATH"


def set_java_options(options: str = JAVA_OPTIONS) -> None:
    """Set the options of all drivers that the current process and its children start from now
    on."""
    os.environ[DRIVER_OPTIONS] = options
    os.environ[MORE_CLASSES] = str(LOCAL_FILES)
