"""Runs a Kafka broker in KRaft mode, from its jars on Maven Central, without containers.

    python broker.py [--port 9092] [--folder kafka-sessions/kafka]

The broker runs until Ctrl-C, and keeps its files in the folder. The first start downloads the jars
(60 MB) into the user's cache; the jars are used only if their checksums are in broker.sha256.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cowstate.pinned_jars import pinned_jars

HERE = Path(__file__).resolve().parent
JARS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cowstate" / "kafka"
CLUSTER_ID = "cowstate-kafka-exampl"
START_SECONDS = 120
LINES_OF_LOG = 20


def broker_jars() -> list[Path]:
    """Return the jars of the broker. Downloads missing jars."""
    return pinned_jars(HERE / "broker.sha256", JARS)


def connector_jars() -> list[Path]:
    """Return the jars that Spark needs to read and write Kafka. Downloads missing jars."""
    return pinned_jars(HERE / "connector.sha256", JARS)


@contextmanager
def running_broker(folder: Path, port: int = 0) -> Iterator[str]:
    """Run a broker with its files in `folder`. Yields the broker's address, `host:port`.

    `port`: 0 for a free port. Exits with a message if there is no Java, if the port is in use, or
    if the broker does not start; then the message has the end of the broker's log.
    """
    program = _java()
    address, controller = f"127.0.0.1:{_port(port)}", f"127.0.0.1:{_port(0)}"
    classpath = os.pathsep.join(map(str, broker_jars()))
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "broker.properties"
    properties.write_text(_properties(folder / "data", address, controller))
    log = folder / "broker.log"
    java = (program, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath)
    format_command = (*java, "kafka.tools.StorageTool", "format", "--ignore-formatted")
    with log.open("wb") as output:
        subprocess.run(
            (*format_command, "-t", CLUSTER_ID, "-c", str(properties)),
            check=False,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        process = subprocess.Popen(
            (*java, "kafka.Kafka", str(properties)),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_reachable(process, address, log)
        yield address
    finally:
        process.kill()
        process.wait()


def _java() -> str:
    """The path of the program java, from JAVA_HOME or the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        sys.exit("there is no java in JAVA_HOME or on the PATH: install Java 17 or newer")
    return found


def _port(wanted: int) -> int:
    """Return a free port, or `wanted` if this port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            sys.exit(f"port {wanted} is in use ({error.strerror}): choose another with --port")
        port: int = probe.getsockname()[1]
        return port


def _properties(data: Path, address: str, controller: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _wait_until_reachable(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    lines = log.read_text(errors="replace").splitlines()[-LINES_OF_LOG:]
    sys.exit("\n".join([f"the broker did not start at {address}; its log ends with:", *lines]))


def stop(number: int, frame: object) -> None:
    """End the program, and the broker with it, as after Ctrl-C."""
    sys.exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    parser = argparse.ArgumentParser(description="Runs a Kafka broker until Ctrl-C.")
    parser.add_argument("--port", type=int, default=9092, help="0: a free port")
    default = Path("kafka-sessions/kafka")
    parser.add_argument("--folder", type=Path, default=default, help="the broker's files")
    given = parser.parse_args()
    with running_broker(given.folder, given.port) as address, suppress(KeyboardInterrupt):
        print(f"a broker runs at {address}; Ctrl-C stops it", flush=True)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
