"""CPU seconds of a test session and of ten batches in the session, over all processes.

`python -m tests.support.sessions.session_costs` measures a session with the archive of classes, and
a session without the archive.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.applications.streams import Stream, random_rows
from tests.support.sessions.java_options import JAVA_OPTIONS, set_java_options
from tests.support.sessions.python_path import import_installed_pyspark
from tests.support.sessions.spark_session import start_spark, stop_spark
from tests.support.tables.table_jobs import Upserts

BATCHES = 10


def cpu_seconds() -> float:
    """CPU seconds of this process and of its descendants that still run or were waited for."""
    used = 0.0
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


@contextmanager
def measured(what: str) -> Iterator[None]:
    before = cpu_seconds()
    yield
    print(f"{cpu_seconds() - before:8.1f}  {what}", flush=True)


def measure(folder: Path) -> None:
    with measured("start of a session"):
        spark = start_spark("local[2]", folder)
    for turn in ("first", "more"):
        upserts = Upserts(spark, folder / f"{turn}-table")
        for batch in range(BATCHES):
            upserts.feed((batch, "a", batch))
        with measured(f"{turn} {BATCHES} batches into a table"):
            upserts.run()
        stream = Stream(spark, folder / f"{turn}-stream")
        for batch in range(BATCHES):
            stream.feed(random_rows(batch, 100, 20))
        with measured(f"{turn} {BATCHES} batches of an operator"):
            stream.run()
    stop_spark(spark)


def main() -> None:
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    import_installed_pyspark()
    for title, options in (("without the archive", ""), ("with it", JAVA_OPTIONS)):
        print(title, flush=True)
        set_java_options(options)
        with tempfile.TemporaryDirectory(prefix="cst-") as folder:
            command = [sys.executable, "-m", "tests.support.sessions.session_costs", folder]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
