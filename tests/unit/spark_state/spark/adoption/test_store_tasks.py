"""The task that writes a subtask's state uses memory that does not grow with the state."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import parse_state_file
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.files.document_body import decode_handle
from checkpoint_store.files.state_file import KEY_GROUP_COLUMN, OP, STATE, STATE_METADATA
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.spark.adoption import store_tasks
from spark_state.spark.adoption.store_tasks import TargetStore, write_subtask
from spark_state.spark.session.operator_configuration import SessionFacts, parse_configuration
from spark_state.spilled_parts import SpilledParts
from tests.support.peak_memory import peak_bytes
from tests.support.tables.table_rows_of import schema_json

BATCH_ROWS = 10_000
MOST_KEY_GROUPS, SUBTASKS = 80, 2
VALUE = pa.struct([("count", pa.int64())])
FILE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False),
        pa.field(STATE, pa.string(), nullable=False),
        pa.field(OP, pa.string(), nullable=False),
        pa.field("counts", VALUE, metadata={STATE_METADATA: b"counts"}),
    ]
)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_tasks, "ROWS_OF_FILE", BATCH_ROWS)
    monkeypatch.setattr(store_tasks, "SpilledParts", partial(SpilledParts, 1 << 20))
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(taskAttemptId=lambda: 7))


def target_in(folder: Path) -> TargetStore:
    metadata = StoreMetadata("store", "operator", MOST_KEY_GROUPS, schema_json(id="long"))
    run = Run(1, "adoption")
    facts = SessionFacts("local[1]", SUBTASKS, 1, speculation=False)
    configuration = parse_configuration({}, facts)
    return TargetStore(str(folder), configuration, metadata, SUBTASKS, 0, run, 1, FILE_SCHEMA, None)


def received(batches: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of the second subtask, with key groups in no order."""
    for number in range(batches):
        ids = np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        groups = (ids * 7919 % (MOST_KEY_GROUPS // SUBTASKS) + MOST_KEY_GROUPS // SUBTASKS).astype(
            "i4"
        )
        values: Any = pa.StructArray.from_arrays([pa.array(ids)], fields=[*VALUE])
        places = pa.array(np.zeros(BATCH_ROWS, np.int32))
        yield pa.RecordBatch.from_arrays(
            [pa.array(ids), pa.array(groups), places, values],
            ["key_0", "key_group", "state", "state_0"],
        )


def test_files_have_all_rows_in_order_and_all_key_groups_once(tmp_path: Path) -> None:
    told = [
        row
        for batch in write_subtask(target_in(tmp_path), received(9))
        for row in batch.to_pylist()
    ]
    handles = [decode_handle(json.loads(row["handle"]), parse_state_file) for row in told]
    assert len(handles) > 5
    edges = [(handle.key_groups.start, handle.key_groups.end) for handle in handles]
    assert (edges[0][0], edges[-1][1]) == (40, 79)
    assert all(end + 1 == start for (_, end), (start, _) in itertools.pairwise(edges))
    checkpoints = CompletedCheckpointStore(LocalObjectStore(tmp_path))
    ids: list[int] = []
    for handle in handles:
        for _, batches in checkpoints.files.states.read_each([handle], handle.key_groups):
            rows = pa.Table.from_batches(batches)
            places = rows.select([KEY_GROUP_COLUMN, "id"]).to_pylist()
            assert [tuple(place.values()) for place in places] == sorted(
                tuple(place.values()) for place in places
            )
            ids += rows["id"].to_pylist()
    assert sorted(ids) == list(range(9 * BATCH_ROWS))


def test_memory_does_not_grow_with_the_state(tmp_path: Path) -> None:
    def peak_of(batches: int) -> int:
        return peak_bytes(lambda: [*write_subtask(target_in(tmp_path), received(batches))])

    peak_of(10)
    assert peak_of(40) < 1.5 * peak_of(10)
