"""Before a commit, the driver checks a batch's rows in memory that does not grow with the batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from checkpoint_store.files.epoch_file_name import is_sign_of_life
from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.tables import table_store, unnamed_files
from checkpoint_store.tables.table_store import TableFileWriter, TableStore
from checkpoint_store.tables.table_version import TableVersion
from datasources.errors import DuplicateKeyError
from datasources.sink import rows_of_batch
from datasources.sink.opened_tables import open_planned, plan_of_sink
from datasources.sink.rows_of_batch import check_duplicates, in_sequence
from datasources.sink.table_rows import SinkPlan, rows_to_write
from datasources.sink.table_sink import FilesMessage, TableBatchWriter, WrittenBatch
from datasources.sink.table_upkeep import upkeep_of
from spark_state.spilled_parts import SpilledParts
from tests.support.peak_memory import peak_bytes

SCHEMA = StructType([StructField(name, LongType()) for name in ("id", "at", "value")])
WRITER = TableFileWriter("job", 0, 0, 0)
FILE_ROWS = 20_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_of_batch, "_PART_ROWS", FILE_ROWS)
    monkeypatch.setattr(rows_of_batch, "SpilledParts", partial(SpilledParts, 1 << 20))


def opened_in(folder: Path, **options: str) -> tuple[SinkPlan, TableStore]:
    plan = plan_of_sink({"path": str(folder), "keys": "id", **options}, SCHEMA)
    return plan, open_planned(plan)


def written(plan: SinkPlan, table: TableStore, *files: dict[str, Any]) -> list[StateHandle]:
    return [
        table.write_rows("changelog", rows_to_write(pa.table(columns), plan), WRITER)
        for columns in files
    ]


def columns(first: int, count: int = FILE_ROWS, at: int = 0) -> dict[str, Any]:
    ids = np.arange(first, first + count)
    return {"id": ids, "at": np.full(count, at), "value": ids}


@pytest.mark.parametrize("options", [{}, {"sequenceBy": "at", "ignoreNullUpdates": "true"}])
def test_memory_does_not_grow_with_rows_of_a_batch(tmp_path: Path, options: dict[str, str]) -> None:
    plan, table = opened_in(tmp_path, **options)
    files = written(plan, table, *(columns(file * FILE_ROWS) for file in range(24)))

    def commit_of(some: Sequence[StateHandle]) -> int:
        def read() -> None:
            check_duplicates(table, plan, some)
            in_sequence(table, plan, some, WRITER)

        return peak_bytes(read)

    commit_of(files[:6])
    assert commit_of(files) < 1.5 * commit_of(files[:6])


def test_a_key_of_several_files_is_found_in_whatever_part_it_is(tmp_path: Path) -> None:
    plan, table = opened_in(tmp_path)
    files = written(plan, table, *(columns(file * FILE_ROWS) for file in range(3)))
    check_duplicates(table, plan, files)
    for key in (0, 31_415, 3 * FILE_ROWS - 1):
        again = written(plan, table, columns(key, 1))
        with pytest.raises(DuplicateKeyError) as caught:
            check_duplicates(table, plan, [*files, *again])
        assert caught.value.keys == ((key,),)


def test_files_of_a_commit_that_takes_long_are_shown_alive_until_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are folded before the version is put, and another writer's sweep may run meanwhile."""
    plan, table = opened_in(tmp_path)
    files = tuple(written(plan, table, columns(0)))
    directory = tmp_path / files[0].name.rpartition("/")[0]
    signed = partial(unnamed_files.shown_alive, every_seconds=0.01)
    monkeypatch.setattr(table_store, "shown_alive", signed)
    upkeep = upkeep_of(plan.options)

    signs: list[str] = []

    def slow(_: Any, version: TableVersion, *bounds: Any) -> TableVersion:
        deadline = time.monotonic() + 60
        while not signs and time.monotonic() < deadline:
            names = (str(path.relative_to(tmp_path)) for path in directory.iterdir())
            signs.extend(filter(is_sign_of_life, names))
        return version

    monkeypatch.setattr(upkeep, "done_before", slow)
    batch = WrittenBatch("job", 0, None)
    message = FilesMessage(plan.metadata, batch, 0, files, None, time.time())
    TableBatchWriter(plan).commit([message])
    assert signs
    assert table.versions() == [0]
    assert [path.name for path in directory.iterdir()] == [files[0].name.rpartition("/")[2]]


def test_rows_of_a_key_are_in_sequence_whichever_task_wrote_them(tmp_path: Path) -> None:
    plan, table = opened_in(tmp_path, sequenceBy="at", ignoreNullUpdates="true")
    files = written(plan, table, *(columns(0, at=at) for at in (3, 1, 2)))
    ordered = in_sequence(table, plan, files, WRITER)
    assert sum(file.rows for file in ordered) == 3 * FILE_ROWS
    assert len(ordered) > 1
    sequences: dict[int, list[int]] = {}
    for file in ordered:
        for batch in table.read_rows(file, plan.metadata.key_groups):
            for row in batch.select(["id", "_sequence"]).to_pylist():
                sequences.setdefault(row["id"], []).append(row["_sequence"])
    assert sequences == {id: [1, 2, 3] for id in range(FILE_ROWS)}
    unsorted, other = opened_in(tmp_path / "other", sequenceBy="at")
    assert in_sequence(other, unsorted, files, WRITER) == tuple(files)
