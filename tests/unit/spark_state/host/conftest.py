"""State hosts of one subtask over a store in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.subtasks import Host, OpenHost, operator


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def open_host(tmp_path: Path, pool: ThreadPoolExecutor) -> OpenHost:
    """Opens hosts over one store; keywords are OperatorSpec's and Host's fields."""

    def open_one(processor: Any = None, **changes: Any) -> Host:
        own = {name: changes.pop(name) for name in ("subtask", "run_id") if name in changes}
        return Host(operator(tmp_path, processor, **changes), **own).open(pool)

    return open_one
