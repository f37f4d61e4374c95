"""Runs the whole example, and stops all that it started.

    python run.py [--seconds 60] [--users 50] [--kills 0] [--port 9092] [--folder kafka-sessions]

1. A Kafka broker starts, and the topics are made (broker.py, topics.py).
2. Clicks are sent (clicks.py) while the job cuts the clicks into sessions (sessions.py). `--kills`:
   how often the job is killed, with SIGKILL, and started again.
3. The sessions are shown as the table gets them.
4. The table is compared with a batch over all clicks (check.py).

The same command goes on with the topics, the state and the table of the folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from broker import running_broker
from topics import CLICKS, NOBODY, create_topics, kafka

from checkpoint_store import open_store
from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError

HERE = Path(__file__).resolve().parent
SHOWN_SESSIONS = 3
END_SECONDS = 300
Session = tuple[int, str, int]
"""End in milliseconds, user and number of clicks."""


class Job:
    """The job, in a process group of its own, with its JVM."""

    def __init__(self, address: str, folder: Path) -> None:
        self._arguments = ("--bootstrap-servers", address, "--folder", str(folder))
        self._commits = folder / "checkpoint" / "commits"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._committed = self._batches()
        command = (sys.executable, str(HERE / "sessions.py"), *self._arguments)
        return subprocess.Popen(command, start_new_session=True)

    def has_run_a_batch(self) -> bool:
        """Return True if a batch was committed since the last start."""
        return self._batches() > self._committed

    def _batches(self) -> int:
        return sum(1 for _ in self._commits.glob("[0-9]*"))

    def kill(self) -> None:
        """Kill the job and its JVM, and start the job again."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = self._start()

    def check(self) -> None:
        """Exit if the job has ended."""
        if self._process.poll() is not None:
            sys.exit(f"the job ended with exit code {self._process.returncode}, see above")

    def stop(self) -> None:
        """Stop the job as Ctrl-C does."""
        self._signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextmanager
def running_job(address: str, folder: Path) -> Iterator[Job]:
    job = Job(address, folder)
    try:
        yield job
    finally:
        job.stop()


@contextmanager
def running_clicks(address: str, given: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    options = {"bootstrap-servers": address, "seconds": given.seconds, "users": given.users}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = (sys.executable, str(HERE / "clicks.py"), *words)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def sessions_in(table: Path) -> list[Session]:
    """The sessions of the table but those of `nobody`, in the order of their ends. Empty while
    there is no table."""
    try:
        rows = open_store(str(table)).read().to_pylist()
    except (NotAStoreError, VersionNotRetainedError):
        return []
    return sorted(
        (row["end_ms"], row["user"], row["clicks"]) for row in rows if row["user"] != NOBODY
    )


def clicks_in_topic(address: str) -> int:
    """The number of clicks in the topic, without the clicks of `nobody`."""
    consumer = kafka.Consumer({"bootstrap.servers": address, "group.id": "count-of-clicks"})
    partitions = consumer.list_topics(CLICKS).topics[CLICKS].partitions
    clicks, deadline = 0, time.monotonic() + END_SECONDS
    for partition in partitions:
        first, end = consumer.get_watermark_offsets(kafka.TopicPartition(CLICKS, partition))
        consumer.assign([kafka.TopicPartition(CLICKS, partition, first)])
        while first < end:
            if time.monotonic() > deadline:
                sys.exit(f"the broker gave no clicks for {END_SECONDS} s")
            for message in consumer.consume(10_000, 1.0):
                if message.error() is not None:
                    sys.exit(f"the clicks cannot be counted: {message.error().str()}")
                first = message.offset() + 1
                clicks += message.key() != NOBODY.encode()
    consumer.close()
    return clicks


def show(sessions: list[Session]) -> None:
    if not sessions:
        print("no session has ended yet", flush=True)
        return
    print(f"\n{len(sessions):,} sessions, the newest:", flush=True)
    for end_ms, user, clicks in sessions[-SHOWN_SESSIONS:]:
        print(f"    {user} until {datetime.fromtimestamp(end_ms / 1000):%X}: {clicks} clicks")


def follow(job: Job, sender: subprocess.Popen[bytes], table: Path, kills: list[float]) -> None:
    """Show the sessions while clicks are sent. `kills`: when to kill the job, in seconds from now;
    a kill waits until the job has run a batch."""
    start, shown = time.monotonic(), None
    while sender.poll() is None or kills:
        if kills and time.monotonic() > start + kills[0] and job.has_run_a_batch():
            del kills[0]
            print("\nthe job is killed, and started again", flush=True)
            job.kill()
        job.check()
        if (sessions := sessions_in(table)) != shown:
            show(sessions)
            shown = sessions
        time.sleep(5)
    if sender.returncode:
        sys.exit(f"clicks.py ended with exit code {sender.returncode}, see above")


def await_all(job: Job, table: Path, clicks: int) -> None:
    """Wait until the sessions of the table have all clicks."""
    deadline = time.monotonic() + END_SECONDS
    while (counted := sum(session[2] for session in sessions_in(table))) != clicks:
        job.check()
        if time.monotonic() > deadline:
            sys.exit(f"the table's sessions have {counted:,} of {clicks:,} clicks")
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the whole example.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--folder", type=Path, default=Path("kafka-sessions"))
    given = parser.parse_args()
    table = given.folder / "table"
    kills = [given.seconds * (n + 1) / (given.kills + 1) for n in range(given.kills)]
    with running_broker(given.folder / "kafka", given.port) as address:
        create_topics(address)
        print(f"a broker runs at {address}", flush=True)
        with running_job(address, given.folder) as job:
            with running_clicks(address, given) as sender:
                follow(job, sender, table, kills)
            await_all(job, table, clicks_in_topic(address))
            show(sessions_in(table))
        options = ("--bootstrap-servers", address, "--store", str(given.folder))
        checked = subprocess.run((sys.executable, str(HERE / "check.py"), *options), check=False)
    sys.exit(checked.returncode)


def end(number: int, frame: object) -> None:
    """Stop all that was started, as after Ctrl-C."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
