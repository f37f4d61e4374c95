"""A gibibyte of the driver's memory suffices to commit a batch of 20 million rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint_store.objects.object_store import LocalObjectStore
from checkpoint_store.tables.table_store import TableStore

ROWS = 20_000_000
pytestmark = [pytest.mark.fault, pytest.mark.soak]
OPTIONS = [[], ["sequenceBy=at", "ignoreNullUpdates=true"]]


def assert_all_rows_are_there(table: Path) -> None:
    newest = TableStore(LocalObjectStore(table)).newest()
    assert newest is not None
    assert sum(file.rows for file in newest.state) == ROWS


@pytest.mark.parametrize("options", OPTIONS)
def test_a_commit_of_many_rows_needs_little_memory(tmp_path: Path, options: list[str]) -> None:
    call = [
        sys.executable,
        "-m",
        "tests.support.tables.large_batch",
        str(tmp_path),
        str(ROWS),
        *options,
    ]
    subprocess.run([*call, "write"], check=True)
    committed = subprocess.run([*call, "commit"], check=True, stdout=subprocess.PIPE, text=True)
    print(f"the commit took {int(committed.stdout) >> 20} MiB")
    assert int(committed.stdout) < 1 << 30
    assert_all_rows_are_there(tmp_path / "table")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_stream_takes_many_rows_in_one_batch(tmp_path: Path, options: list[str]) -> None:
    call = [
        sys.executable,
        "-m",
        "tests.support.tables.large_batch",
        str(tmp_path),
        str(ROWS),
        *options,
    ]
    subprocess.run([*call, "stream"], check=True)
    assert_all_rows_are_there(tmp_path / "table")
