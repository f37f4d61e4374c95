"""A gibibyte of the driver's memory suffices to commit a batch of 20 million rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.tables.table_store import TableStore

ROWS = 20_000_000
pytestmark = [pytest.mark.fault, pytest.mark.soak]
OPTIONS = [[], ["sequenceBy=at", "ignoreNullUpdates=true"]]


def assert_all_rows_are_there(table: Path) -> None:
    newest = TableStore(LocalObjectStore(table)).newest()
    assert newest is not None
    assert sum(file.rows for file in newest.state) == ROWS


def do(step: str, folder: Path, options: list[str]) -> str:
    """Run a step of `large_batch` in a process of its own. Returns what the step printed."""
    module = "tests.support.tables.large_batch"
    command = [sys.executable, "-m", module, str(folder), str(ROWS), *options, step]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("options", OPTIONS)
def test_a_commit_of_many_rows_needs_little_memory(tmp_path: Path, options: list[str]) -> None:
    do("write", tmp_path, options)
    most_bytes = int(do("commit", tmp_path, options))
    print(f"the commit took {most_bytes >> 20} MiB")
    assert most_bytes < 1 << 30
    assert_all_rows_are_there(tmp_path / "table")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_stream_takes_many_rows_in_one_batch(tmp_path: Path, options: list[str]) -> None:
    do("stream", tmp_path, options)
    assert_all_rows_are_there(tmp_path / "table")
