"""The state hosts of a local session start when an operator is planned, as a worker starts them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import spark_state
from spark_state.spark.operator import early_hosts
from tests.support.operators.executors import state_hosts
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

PATIENCE_SECONDS = 120


class Environment(StatefulProcessor):
    """Yields the pid and a variable of the host that runs the processor."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        import os

        yield Row(pid=os.getpid(), mark=os.environ.get("EARLY_MARK"))

    def close(self) -> None:
        pass


def end_hosts(jvm_pid: int) -> None:
    hosts = state_hosts(jvm_pid)
    for host in hosts:
        host.terminate()
    _, running = psutil.wait_procs(hosts, timeout=PATIENCE_SECONDS)
    assert running == []


@pytest.fixture
def without_hosts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The pid of the JVM of a session that has no hosts, and whose workers get a variable."""
    monkeypatch.setitem(spark.sparkContext.environment, "EARLY_MARK", "of executors")
    monkeypatch.setattr(early_hosts, "_started", set())
    jvm: Any = spark.sparkContext._jvm
    jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
    end_hosts(jvm_pid)
    yield jvm_pid
    end_hosts(jvm_pid)


def planned(spark: SparkSession) -> Any:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
    keyed = rows.option("startTimestamp", 0).load().selectExpr("value % 7 AS key")
    return spark_state.transform_with_state(
        keyed.groupBy("key"), Environment(), "pid bigint, mark string", "update", "None"
    )


def hosts_once_started(spark: SparkSession, jvm_pid: int) -> set[int]:
    """The pids of the hosts of a session, as soon as all hosts have started."""
    expected = int(spark.sparkContext.defaultParallelism)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(state_hosts(jvm_pid)) < expected and time.monotonic() < deadline:
        time.sleep(0.1)
    started = {host.pid for host in state_hosts(jvm_pid)}
    assert len(started) == expected
    return started


def test_enable_starts_the_hosts_once_the_settings_are_right(
    spark: SparkSession, without_hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[object] = []
    with monkeypatch.context() as patch, configured(spark, {"spark.cowstate.backend": "no"}):
        patch.setattr(early_hosts, "_start", lambda *given: launched.append(given))
        spark_state.enable(spark)
    assert launched == []
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    try:
        spark_state.enable(spark)
        hosts_once_started(spark, without_hosts)
        monkeypatch.setattr(early_hosts, "_start", lambda *given: launched.append(given))
        planned(spark)
    finally:
        spark_state.disable(spark)
    assert launched == []


def test_the_first_batch_runs_on_hosts_that_started_with_the_plan(
    spark: SparkSession, without_hosts: int, tmp_path: Path
) -> None:
    output = planned(spark)
    started = hosts_once_started(spark, without_hosts)

    query = (
        output.writeStream.format("memory")
        .queryName("early_hosts")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("update")
        .start()
    )
    while not query.recentProgress:
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.stop()
    emitted = spark.table("early_hosts").distinct().collect()
    assert emitted
    assert {row.pid for row in emitted} <= started
    assert {row.mark for row in emitted} == {"of executors"}


def test_workers_with_another_interpreter_start_the_hosts(
    spark: SparkSession, without_hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    launched: list[object] = []
    monkeypatch.setattr(early_hosts, "_start", lambda *given: launched.append(given))
    planned(spark)
    assert launched == []


def test_a_process_that_cannot_start_is_a_warning(
    spark: SparkSession,
    without_hosts: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    planned(spark)
    assert "no state host was started before the first task" in caplog.text
    assert "/no/such/python" in caplog.text
