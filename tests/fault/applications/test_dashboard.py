"""The dashboard of the example `monitoring` on a real Prometheus, as an application is killed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications import whole_applications
from tests.support.stores.cloud_servers import free_port
from tests.test_monitoring_example import EXAMPLE, panels

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.process, pytest.mark.timeout(900)]
PATIENCE_SECONDS = 300


class Prometheus:
    """A Prometheus that scrapes an application each two seconds."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self._start = time.time()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression over the time since the start, a value each second."""
        asked = {"query": expression, "start": self._start, "end": time.time(), "step": 1}
        url = f"{self._url}/query_range?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=60) as response:
            result: list[dict[str, Any]] = json.loads(response.read())["data"]["result"]
        return result

    def values(self, expression: str) -> list[float]:
        """The values of the only series of an expression."""
        (series,) = self.query(expression)
        return [float(value) for _, value in series["values"]]


@contextmanager
def running_prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    config = (EXAMPLE / "prometheus.yml").read_text().replace("localhost:9095", target)
    (folder / "prometheus.yml").write_text(config.replace(": 5s", ": 2s"))
    shutil.copy(EXAMPLE / "alerts.yml", folder)
    port = free_port()
    process = subprocess.Popen(
        (
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def application(folder: Path, port: int) -> Iterator[None]:
    """An application that is killed at the end of the `with` block."""
    module = "tests.support.applications.watched_application"
    process = whole_applications.start(module, str(folder), str(port), log=folder / "log")
    try:
        yield
    finally:
        whole_applications.kill(process)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:  # Prometheus does not listen yet
            pass
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_the_dashboard_shows_a_kill(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("there is no Prometheus: apt-get install prometheus")
    port = free_port()
    epochs = "cowstate_operator_epochs_total"
    batches = 'cowstate_query_batches_total{query_name="aggregation"}'

    with running_prometheus(tmp_path, f"127.0.0.1:{port}") as prometheus:

        def has_run(counted: int, resets: int) -> bool:
            return all(
                prometheus.query(counter)
                and prometheus.values(f"resets({counter}[1h])")[-1] >= resets
                and prometheus.values(counter)[-1] > counted
                for counter in (epochs, batches)
            )

        # The second run has counted less when it is first scraped, so the counters fall.
        with application(tmp_path, port):
            until(lambda: has_run(counted=40, resets=0))
        until(lambda: prometheus.values('up{job="cowstate"}')[-1] == 0)
        rows_before = prometheus.values("cowstate_operator_rows")[-1]
        with application(tmp_path, port):
            until(lambda: has_run(counted=3, resets=1))

        for panel in panels():
            for target in panel["targets"]:
                series = prometheus.query(target["expr"].replace("$query", ".*"))
                assert series, panel["title"]
                legend = re.findall(r"{{(\w+)}}", target["legendFormat"])
                assert all(set(legend) <= one["metric"].keys() for one in series), panel["title"]
        changes = [value for value, _ in groupby(prometheus.values('up{job="cowstate"}'))]
        assert changes[-3:] == [1, 0, 1]
        assert rows_before == prometheus.values("cowstate_operator_rows")[-1] == 7
        step = 'cowstate_operator_step_seconds_total{step="restore"}'
        assert prometheus.values(step)[-1] > 0
