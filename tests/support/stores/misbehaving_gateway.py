"""The gateway's process over a misbehaving store, which an executor starts in place of Python.

`misbehaving_python` writes the program that the executor runs.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from spark_state.gateway import server, stored_objects
from tests.support.stores.fake_object_store import MisbehavingObjectStore

ROOT = Path(__file__).resolve().parents[3]
MODULES = ("spark_state.gateway.server", "tests.support.stores.misbehaving_gateway")


def misbehaving_python(folder: Path, seed: int, **chances: float | str) -> Path:
    """Write a program that an executor runs in place of Python. `chances`: arguments of
    MisbehavingObjectStore."""
    python = folder / "misbehaving-python"
    arguments = json.dumps({"seed": seed, **chances})
    python.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={ROOT}\n"
        f"exec {sys.executable} -m {MODULES[1]} '{arguments}'\n"
    )
    python.chmod(0o755)
    return python


def gateways_below(process: psutil.Process) -> list[psutil.Process]:
    """The gateways among a process's descendants."""
    gateways = []
    for child in process.children(recursive=True):
        try:
            if any(word in MODULES for word in child.cmdline()):
                gateways.append(child)
        except psutil.Error:
            continue  # the child has ended
    return gateways


def end_gateways() -> None:
    """Kill the gateways of the test JVM. The JVM starts a new gateway when necessary."""
    gateways = gateways_below(psutil.Process())
    for gateway in gateways:
        with suppress(psutil.NoSuchProcess):
            gateway.kill()
    # The JVM waits for its children, so the killed gateways disappear.
    for gateway in gateways:
        with suppress(psutil.NoSuchProcess):
            gateway.wait(60)


def main() -> None:
    """Serve as the gateway does, from misbehaving stores."""
    chances = json.loads(sys.argv[1])
    chance = random.Random(chances.pop("seed"))

    def opened(url: str, options: Mapping[str, Any]) -> ObjectStore:
        return MisbehavingObjectStore(open_object_store(url, options), chance, **chances)

    stored_objects.open_object_store = opened  # type: ignore[assignment]
    server.main()


if __name__ == "__main__":
    main()
