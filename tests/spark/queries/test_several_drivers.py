"""Copied checkpoints, restored stores and rolled-back queries go on right or give a clear error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from checkpoint_store.runs.run_errors import EpochsLostError
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.eventually import eventually
from tests.support.processors.processors import DoubledTotals

pytestmark = pytest.mark.spark


def feed(stream: Stream, files: int) -> None:
    for _ in range(files):
        stream.feed(random_rows(len(stream.fed), count=60, keys=20))


def test_a_store_that_was_put_back_is_refused_when_the_query_starts(
    stream: Stream, tmp_path: Path
) -> None:
    feed(stream, 2)
    stream.run()
    store = stream.store()
    shutil.copytree(store, tmp_path / "copy")
    feed(stream, 3)
    stream.run()
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "copy", store)
    feed(stream, 1)
    with pytest.raises(EpochsLostError, match=r"committed epoch 4 .* has epoch 1"):
        stream.run()
    # The way out in the error message: the query goes back to the state in the store.
    stream.restart_from(2)
    stream.run()
    assert stream.totals() == stream.stored() == totals_of(stream.fed)


def test_a_query_goes_back_and_on_however_often(stream: Stream) -> None:
    feed(stream, 4)
    stream.run()
    for batch in (1, 3, 0, 2):
        stream.restart_from(batch)
        feed(stream, 1)
        stream.run()
        assert stream.totals() == stream.stored() == totals_of(stream.fed)


def test_a_store_put_back_is_noticed_behind_batches_of_another_source(
    stream: Stream, tmp_path: Path
) -> None:
    """The last batches have rows of another source only, so the operator has no epochs of these
    batches."""
    feed(stream, 2)
    other = Stream(stream.spark, tmp_path / "other")
    other.feed([("x", 1)])

    def run() -> None:
        plain = other.source().selectExpr("key", "1L AS rows", "value AS total")
        stream.run(stream.operator().union(plain))

    run()
    shutil.copytree(stream.store(), tmp_path / "copy")
    for value in (2, 3):
        other.feed([("x", value)])
    run()
    feed(stream, 1)
    run()
    for value in (4, 5):
        other.feed([("x", value)])
    run()
    store = stream.store()
    epochs = sorted({int(path.name.split("-")[0]) for path in (store / "manifests").iterdir()})
    assert len(epochs) == 3
    assert stream.committed() - 1 > epochs[-1]
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "copy", store)
    message = rf"committed epoch {epochs[-1]} .* has epoch {epochs[1]}"
    with pytest.raises(EpochsLostError, match=message):
        run()


def test_a_batch_that_a_failed_sink_left_may_run_again_otherwise(stream: Stream) -> None:
    """The processor differs when the batch runs again, so both runs have the epoch with different
    contents. The driver of the second run reports that Spark has committed its batch."""
    feed(stream, 1)
    stream.run()
    feed(stream, 1)

    def fail(batch: DataFrame, epoch: int) -> None:
        batch.collect()
        raise RuntimeError("the sink is away")

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        stream.run(sink=fail)
    doubled = stream.operator(DoubledTotals(), name="RunningTotals")
    stream.run(doubled)
    eventually(lambda: any("-reached-" in p.name for p in (stream.store() / "begun").iterdir()))
    before = stream.stored()
    feed(stream, 1)
    stream.run(doubled)
    rows = stream.fed[-60:]
    added = {key: (count, 2 * total) for key, (count, total) in totals_of(rows).items()}
    for key, (count, total) in added.items():
        count_before, total_before = before.get(key, (0, 0))
        assert stream.stored()[key] == (count_before + count, total_before + total)
