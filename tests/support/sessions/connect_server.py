"""A server of Spark Connect in a process of its own, and clients in their own processes.

A process can have only a single kind of PySpark, classic or Connect. The sessions of tests are
classic, so neither server nor client runs in the test process. `python -m
tests.support.sessions.connect_server [key=value …]` is the server. The server prints its port, and
ends at the end of its input. A client runs jobs of `connect_jobs`, each in a session of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from tests.support.applications.streams import write_rows

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
ANSWER = "answer: "
"""Begins the line with the result of a job."""
# A small server with the long timeouts of the other tests' session.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.network.timeout": "1200s",
}


@dataclass(frozen=True, slots=True)
class Client:
    """A process that runs one job after the other on a server. If `url` is a local master, the
    first job starts a server in the process, and all jobs share a session."""

    url: str
    _process: subprocess.Popen[str]
    _log: Path

    def run(self, job: str, folder: Path, **arguments: Any) -> Any:
        """Run a job and return its result. Raises AssertionError with the job's error if the job
        fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), job, arguments]), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer = json.loads(line.removeprefix(ANSWER))
                assert "error" not in answer, answer["error"]
                return answer["result"]
        raise AssertionError(self._log.read_text()[-8_000:])


@contextmanager
def client_of(url: str, folder: Path) -> Iterator[Client]:
    """Start a client. Its log is in `folder`."""
    log = folder / "client.log"
    command = [sys.executable, "-m", "tests.support.applications.connect_jobs", url]
    with _started(command, log) as process:
        yield Client(url, process, log)


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Start a server with SETTINGS and `settings`, and yield its URL. The server's log is in
    `folder`."""
    options = [f"{key}={value}" for key, value in {**SETTINGS, **settings}.items()]
    command = [sys.executable, "-m", "tests.support.sessions.connect_server", *options]
    with _started(command, folder / "server.log") as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, (folder / "server.log").read_text()[-8_000:]
        yield f"sc://localhost:{port}"


@contextmanager
def _started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that ends at the end of its input, with its messages in `log`."""
    with log.open("w") as messages:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process
        finally:
            process.stdin.close()
            _end(process)
            process.stdout.close()


def _environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # With SPARK_TESTING set, a client that starts its own server uses a free port.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_TESTING": "1"}


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process that is about to end. Kill the process and its JVM after a timeout."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    for child in alive:
        child.kill()


def feed(folder: Path, batches: Sequence[Sequence[tuple[Any, Any]]], first: int = 0) -> None:
    """Write a file of rows (key, value) for each batch, with modification times in the same
    order."""
    for number, rows in enumerate(batches, first):
        file = folder / f"{number:05d}.parquet"
        write_rows(file, rows)
        os.utime(file, (1_000 + number, 1_000 + number))


def emitted(folder: Path) -> list[tuple[Any, ...]]:
    """The sorted rows that a query has written into `folder`."""
    rows = [tuple(row.values()) for row in pq.read_table(folder).to_pylist()]
    return sorted(rows, key=repr)


def main() -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from tests.support.sessions.spark_session import stop_spark

    conf = SparkConf().setMaster("local[2]")
    conf.set("spark.plugins", PLUGIN).set("spark.connect.grpc.binding.port", "0")
    for option in sys.argv[1:]:
        conf.set(*option.split("=", 1))
    session = SparkSession(SparkContext(conf=conf))
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    jvm: Any = session._jvm
    print(getattr(getattr(jvm, service), "MODULE$").localPort(), flush=True)
    sys.stdin.read()
    stop_spark(session)


if __name__ == "__main__":
    main()
