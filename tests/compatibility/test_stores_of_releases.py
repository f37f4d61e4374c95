"""Stores written by earlier releases must stay readable. `write_store.py` wrote each of them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.compatibility.write_store import EPOCHS, ROWS
from tests.support.subtasks import Host, operator

FIXTURES = Path(__file__).parent / "stores"


@pytest.mark.parametrize("release", sorted(path.name for path in FIXTURES.iterdir()))
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_store_of_a_release_restores_and_goes_on(
    release: str, parallelism: int, tmp_path: Path
) -> None:
    shutil.copytree(FIXTURES / release, tmp_path / "store")
    spec = operator(tmp_path / "store", parallelism=parallelism)
    emitted: dict[str, tuple[int, int]] = {}
    with ThreadPoolExecutor(1) as pool:
        for subtask in range(parallelism):
            emitted |= Host(spec, subtask, "run-2").open(pool).epoch(EPOCHS, ROWS)
    assert emitted == {key: (EPOCHS + 1, EPOCHS + 1) for key, _ in ROWS}
