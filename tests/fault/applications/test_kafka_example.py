"""The example `kafka`, copied and run as a user does, on a broker from Maven Central."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from checkpoint_store import open_store
from checkpoint_store.errors import NotAStoreError, VersionNotRetainedError
from cowstate.cli.command_line import main
from examples.kafka.broker import broker_jars, connector_jars, running_broker
from tests.support.applications import whole_applications
from tests.support.stores.cloud_servers import free_port
from tests.support.stores.moto_s3 import moto_s3
from tests.test_compose_example import SERVICES, command_of

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copied example. Skips if the jars of Kafka cannot be downloaded."""
    try:
        broker_jars()
        connector_jars()
    except SystemExit as reason:
        if "cannot download" not in str(reason):
            raise
        pytest.skip(str(reason))
    copy = tmp_path_factory.mktemp("kafka") / "example"
    assert main(["example", "kafka", "--to", str(copy)]) == 0
    return copy


@pytest.fixture
def broker(example: Path, tmp_path: Path) -> Iterator[str]:
    with running_broker(tmp_path / "kafka") as address:
        yield address


def run(
    program: Path, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of the example."""
    return subprocess.run(
        (sys.executable, program, *arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def messages_of(address: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Key and value of each message of a topic."""
    kafka = pytest.importorskip("confluent_kafka")
    consumer = kafka.Consumer({"bootstrap.servers": address, "group.id": "test"})
    messages = []
    for partition in consumer.list_topics(topic).topics[topic].partitions:
        place = kafka.TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        read = 0
        while read < end:
            for message in consumer.consume(10_000, 1.0):
                messages.append((message.key().decode(), json.loads(message.value())))
                read = message.offset() + 1
    consumer.close()
    return messages


@contextmanager
def used_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_sessions_of_a_job_that_is_killed_twice_are_those_of_a_batch(
    example: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    options = ("--users", "30", "--port", str(free_port()), "--folder", folder)
    # The second command goes on with topics, state and table of the first.
    for seconds, kills in ((30, 2), (10, 0)):
        done = run(example / "run.py", "--seconds", f"{seconds}", "--kills", f"{kills}", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("the job is killed, and started again") == kills
        assert "all as in a batch over the clicks" in done.stdout.splitlines()[-1]

    # A reader that keeps a row for each key has what the table has, whatever came twice.
    with running_broker(folder / "kafka") as address:
        rows_of_key = defaultdict(list)
        for key, row in messages_of(address, "sessions"):
            rows_of_key[key].append(row)
    for key, rows in rows_of_key.items():
        assert {repr(row) for row in rows} == {repr(rows[0])}, key
    table = open_store(str(folder / "table")).read().to_pylist()
    assert sorted(map(repr, table)) == sorted(repr(rows[0]) for rows in rows_of_key.values())
    assert sum(row["clicks"] for row in table) > 100


def test_clicks_are_cut_as_session_window_cuts_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "kafka")
    for name in ("sessions", "broker", "topics"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    example = importlib.import_module("sessions")
    chance, at_ms, clicks = random.Random(5), 0, []
    for _ in range(300):
        at_ms += example.GAP_MS + chance.choice([-4_000, -1, 0, 1, 9_000])
        clicks.append((at_ms, "/"))
    rows = spark.createDataFrame(clicks, "at_ms long, page string")
    window = F.session_window(F.timestamp_millis("at_ms"), f"{example.GAP_MS} milliseconds")
    expected = rows.groupBy(window).agg(F.min("at_ms"), F.max("at_ms"), F.count("*")).collect()
    cut = example.cut(chance.sample(clicks, len(clicks)))
    found = [(session[0][0], session[-1][0], len(session)) for session in cut]
    assert found == sorted(tuple(row)[1:] for row in expected)


def test_the_commands_of_compose_run_with_another_broker_and_store(
    example: Path, broker: str, tmp_path: Path
) -> None:
    metrics = free_port()
    with moto_s3() as s3:
        bucket = s3.new_bucket()
        replaced = {
            "python": sys.executable,
            "broker:9092": broker,
            "s3://cowstate": bucket,
            "/checkpoints": str(tmp_path / "checkpoints"),
            "9095": str(metrics),
            "0.0.0.0": "127.0.0.1",
            "86400": "10",
        }
        topics, clicks, job = (
            [replaced.get(word, word) for word in command_of(service)]
            for service in ("topics", "clicks", "job")
        )
        environment = {**os.environ, **SERVICES["job"]["environment"]}
        environment["AWS_ENDPOINT_URL"] = s3.endpoint
        subprocess.run(topics, cwd=example, check=True)
        with (tmp_path / "log").open("wb") as log:
            running = subprocess.Popen(job, cwd=example, env=environment, stderr=log)
        try:
            subprocess.run(clicks, cwd=example, check=True)
            deadline = time.monotonic() + 300
            while not sessions_in(f"{bucket}/table", s3.storage_options):
                assert running.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(1)
            url = f"http://127.0.0.1:{metrics}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                served = answer.read().decode()
        finally:
            whole_applications.kill(running)
    assert "cowstate_operator_rows{" in served
    assert "cowstate_query_batch{" in served


def sessions_in(table: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table. Empty while there is no table."""
    try:
        rows: list[dict[str, Any]] = open_store(table, storage_options=options).read().to_pylist()
    except (NotAStoreError, VersionNotRetainedError):
        return []
    return rows


@pytest.mark.parametrize("program", ["sessions.py", "clicks.py", "topics.py", "check.py"])
def test_without_a_broker_each_program_says_so_in_a_line(example: Path, program: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = run(example / program, "--bootstrap-servers", address)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"no broker answers at {address}")
    assert f"`python {example / 'broker.py'}`" in line


@pytest.mark.parametrize("program", ["sessions.py", "clicks.py", "check.py"])
def test_a_missing_topic_is_named_with_the_command_that_makes_it(
    example: Path, broker: str, program: str
) -> None:
    done = run(example / program, "--bootstrap-servers", broker)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line == (
        f"the broker at {broker} has no topic clicks and no topic sessions: "
        f"python {example / 'topics.py'} --bootstrap-servers {broker}"
    )
    assert run(example / "topics.py", "--bootstrap-servers", broker).returncode == 0
    assert run(example / "topics.py", "--bootstrap-servers", broker).returncode == 0


def test_a_port_in_use_is_named(example: Path, tmp_path: Path) -> None:
    with used_port() as port:
        done = run(example / "run.py", "--port", str(port), "--folder", tmp_path / "new")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith(f"port {port} is in use")
    assert not (tmp_path / "new").exists()


def test_no_java_is_named(example: Path, tmp_path: Path) -> None:
    options = ("--port", str(free_port()), "--folder", tmp_path / "new")
    done = run(example / "run.py", *options, PATH=str(tmp_path), JAVA_HOME="")
    assert done.stderr == "there is no java in JAVA_HOME or on the PATH: install Java 17 or newer\n"
    assert done.returncode == 1


def test_a_missing_client_is_named(example: Path, tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError")
    done = run(example / "clicks.py", PYTHONPATH=str(tmp_path))
    assert done.stderr == "the example needs Kafka's client: pip install 'cowstate[kafka]'\n"
    assert done.returncode == 1


def test_an_example_replaces_no_directory(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["example", "kafka", "--to", str(example)]) == 2
    assert capsys.readouterr().err == (
        f"cowstate: {example} is there already: name a new directory with --to\n"
    )


def test_a_broker_and_a_job_end_with_their_programs(example: Path, tmp_path: Path) -> None:
    port = free_port()
    options = ("--bootstrap-servers", f"127.0.0.1:{port}")
    command = (sys.executable, example / "broker.py", "--port", str(port), "--folder", tmp_path)
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    assert f"a broker runs at 127.0.0.1:{port}" in broker.stdout.readline()
    assert run(example / "topics.py", *options).returncode == 0
    command = (sys.executable, example / "sessions.py", *options, "--folder", tmp_path / "job")
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert "the job runs" in job.stdout.readline()
    job.send_signal(signal.SIGINT)
    told, errors = job.communicate(timeout=300)
    assert (job.returncode, told) == (0, "stopped; the same command goes on from here\n")
    assert "KeyboardInterrupt" not in errors
    assert "Py4J" not in errors
    broker.terminate()
    assert broker.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
