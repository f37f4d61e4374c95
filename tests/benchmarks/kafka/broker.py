"""A Kafka broker in KRaft mode, from its jars on Maven Central, without containers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.pinned_jars import pinned_jars

HERE = Path(__file__).resolve().parent
JARS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cowstate" / "kafka"
CLUSTER_ID = "cowstate-benchmark-kafk"
START_SECONDS = 120


def connector_jars() -> list[Path]:
    """Return the jars that Spark needs to read and write Kafka. Downloads missing jars."""
    return pinned_jars(HERE / "connector.sha256", JARS)


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """Run a broker with its files in `folder`. Yields the broker's address, `host:port`. Raises
    RuntimeError with the end of the broker's log if the broker does not start."""
    classpath = os.pathsep.join(map(str, pinned_jars(HERE / "broker.sha256", JARS)))
    address, controller = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
    properties = folder / "broker.properties"
    properties.write_text(_properties(folder / "data", address, controller))
    java = ("java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath)
    format_command = (*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c")
    subprocess.run((*format_command, str(properties)), check=True, capture_output=True)
    log = folder / "broker.log"
    with log.open("wb") as output:
        command = (*java, "kafka.Kafka", str(properties))
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_reachable(process, address, log)
        yield address
    finally:
        process.kill()
        process.wait()


def _properties(data: Path, address: str, controller: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_reachable(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    end = _last_lines(log.read_text(errors="replace").splitlines())
    raise RuntimeError(f"the broker did not start at {address}; its log ends with:\n{end}")


def _last_lines(lines: Sequence[str]) -> str:
    return "\n".join(lines[-20:])
