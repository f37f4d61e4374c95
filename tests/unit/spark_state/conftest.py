"""Fixtures: subtasks in a process over a store in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import Host, OpenHost, operator

_OF_HOST = ("subtask", "run_id", "start")


@pytest.fixture
def open_host(tmp_path: Path, maintenance: Maintenance) -> Iterator[OpenHost]:
    """Open hosts over one store; keywords are as for `operator`, and fields of Host."""
    hosts: list[Host] = []

    def open_one(processor: Any = None, **changes: Any) -> Host:
        own = {name: changes.pop(name) for name in _OF_HOST if name in changes}
        hosts.append(Host(operator(tmp_path, processor, **changes), **own).open(maintenance))
        return hosts[-1]

    yield open_one
    for host in hosts:
        host.close()
