"""Test that provider checkpoints of format version 1 stay readable, by Spark and without Spark.

`write_provider_checkpoint.py` wrote the checkpoints.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)
from tests.compatibility.write_provider_checkpoint import (
    BATCHES,
    SNAPSHOT_BATCH,
    State,
    rows_of,
    state_after,
)

CHECKPOINTS = sorted((Path(__file__).parent / "version_1" / "provider").iterdir())
NAMES = [path.name for path in CHECKPOINTS]


def as_state(rows: list[dict[str, Any]]) -> State:
    state: State = {}
    for row in rows:
        value = row["value"]
        pair = value["max"]
        state[row["key"]["key"]] = (value["count"], value["sum"], (pair["text"], pair["number"]))
    assert len(state) == len(rows)
    return state


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=NAMES)
def test_every_batch_is_read_without_spark(checkpoint: Path) -> None:
    store = open_object_store(str(checkpoint))
    assert committed_batches(store) == [*range(BATCHES)]
    for batch in range(BATCHES):
        assert as_state(read_state(store, batch).to_pylist()) == state_after(batch)
        changes = read_changes(store, batch).to_pylist()
        changed = {key: state_after(batch)[key] for key, _ in rows_of(batch)}
        assert as_state(changes) == changed


@pytest.mark.spark
@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=NAMES)
def test_every_batch_is_read_by_spark(
    checkpoint: Path, spark: SparkSession, tmp_path: Path
) -> None:
    shutil.copytree(checkpoint, tmp_path / "checkpoint")
    for batch in range(BATCHES):
        reader = spark.read.format("statestore").option("batchId", batch)
        state = reader.load(str(tmp_path / "checkpoint")).toArrow()
        assert as_state(state.to_pylist()) == state_after(batch)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=NAMES)
def test_the_checkpoint_rests_on_snapshots_and_changelogs(checkpoint: Path) -> None:
    for partition in ("0", "1"):
        files = [path.name for path in (checkpoint / "state" / "0" / partition).iterdir()]
        snapshots = [name for name in files if name.endswith(".snapshot.arrow")]
        changelogs = [name for name in files if name.endswith(".changelog.arrow")]
        assert SNAPSHOT_BATCH + 1 in [int(name.split("-")[0]) for name in snapshots]
        assert len(changelogs) == BATCHES


def test_both_checkpoint_formats_are_there_and_a_rescaled_checkpoint() -> None:
    assert NAMES == ["format-1", "format-2", "format-2-rescaled"]
    (rescaled,) = (path for path in CHECKPOINTS if path.name.endswith("rescaled"))
    assert len([*rescaled.glob("state/0/[012]/*.rescaled.arrow")]) == 3
