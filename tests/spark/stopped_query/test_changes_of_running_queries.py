"""Spark refuses the next batch of a running query after `cowstate adopt` or `cowstate rescale`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cowstate.cli.command_line import main
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from tests.support.provider.provider_jobs import COWSTATE, HDFS, configured

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
REFUSED = "Multiple streaming jobs detected"


@dataclass
class Counting:
    """A stream that counts words, and its latest counts."""

    spark: SparkSession
    folder: Path
    provider: str
    counts: dict[str, int] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    may_end: threading.Event = field(default_factory=threading.Event)
    in_batch: threading.Event = field(default_factory=threading.Event)
    _fed: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def feed(self, words: str) -> None:
        (self.folder / "in").mkdir(parents=True, exist_ok=True)
        hidden = self.folder / "in" / f".{self._fed}.txt"
        hidden.write_text("\n".join(words))
        hidden.rename(hidden.with_name(f"{self._fed}.txt"))
        self._fed += 1

    def start(self, every: str = "100 milliseconds", **trigger: Any) -> StreamingQuery:
        words = self.spark.readStream.text(str(self.folder / "in")).groupBy("value").count()

        def take(df: DataFrame, batch: int) -> None:
            counts = {row["value"]: row["count"] for row in df.collect()}
            self.in_batch.set()
            assert self.may_end.wait(120)
            self.counts.update(counts)
            self.batches.append(batch)

        writer = words.writeStream.outputMode("update").foreachBatch(take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        with configured(self.spark, {PROVIDER: self.provider}):
            return writer.trigger(**(trigger or {"processingTime": every})).start()

    def run_to_the_end(self) -> None:
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)

    def refused(self, query: StreamingQuery) -> None:
        """Assert that the query ends because Spark refuses its next batch."""
        with pytest.raises(StreamingQueryException, match=REFUSED):
            query.awaitTermination(120)

    def change(self, *arguments: str) -> int:
        verb = "rescale" if self.provider == COWSTATE else "adopt"
        wanted = ["--partitions", "5"] if verb == "rescale" else []
        if "--revert" in arguments:
            wanted = []
        return main([verb, str(self.checkpoint), *wanted, *arguments])


@pytest.fixture(params=[COWSTATE, HDFS], ids=["rescale", "adopt"])
def counting(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Counting]:
    counting = Counting(spark, tmp_path, request.param)
    counting.may_end.set()
    counting.feed("aab")
    yield counting
    counting.may_end.set()
    for query in spark.streams.active:
        query.stop()


def idle(counting: Counting, every: str = "100 milliseconds") -> StreamingQuery:
    """Start a query, and wait until the query waits for its next trigger or for input."""
    query = counting.start(every)
    while not (counting.checkpoint / "commits" / "0").exists():
        assert query.isActive, query.exception()
        query.awaitTermination(0.05)
    return query


def test_a_query_that_waits_for_its_trigger_is_refused_its_next_batch_and_loses_nothing(
    counting: Counting,
) -> None:
    query = idle(counting)
    assert counting.change("--apply") == 0
    counting.feed("ac")
    counting.refused(query)
    assert counting.batches == [0]
    counting.provider = COWSTATE
    counting.run_to_the_end()
    assert counting.counts == {"a": 3, "b": 1, "c": 1}
    assert counting.batches == [0, 1, 2], "the batch without rows comes first"


def test_a_trigger_of_minutes_and_a_change_that_is_undone(counting: Counting) -> None:
    query = idle(counting, "10 minutes")
    assert counting.change("--apply") == 0
    assert counting.change("--revert") == 0
    assert query.isActive
    query.stop()
    counting.feed("ac")
    counting.run_to_the_end()
    assert counting.counts == {"a": 3, "b": 1, "c": 1}
    assert counting.change("--apply") == 0


def test_a_batch_that_runs_meanwhile_is_refused_and_the_change_takes_effect(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = idle(counting)
    back_up = CheckpointFiles.copy

    def run_a_batch_first(files: CheckpointFiles, source: str, target: str) -> None:
        if query.isActive:
            counting.feed("ac")
            counting.refused(query)
        back_up(files, source, target)

    monkeypatch.setattr(CheckpointFiles, "copy", run_a_batch_first)
    assert counting.change("--apply") == 0
    assert not query.isActive
    counting.provider = COWSTATE
    counting.run_to_the_end()
    assert counting.counts == {"a": 3, "b": 1, "c": 1}


def test_a_query_in_the_middle_of_a_batch_is_not_changed(
    counting: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    query = idle(counting)
    counting.may_end.clear()
    counting.in_batch.clear()
    counting.feed("ac")
    assert counting.in_batch.wait(120)
    assert counting.change("--apply") == 2
    assert "is planned and not committed: the query may be running it" in capsys.readouterr().err
    counting.may_end.set()
    query.processAllAvailable()
    assert counting.counts == {"a": 3, "b": 1, "c": 1}
    assert query.isActive


def test_a_query_that_was_started_with_the_change_is_not_reverted_under_its_feet(
    counting: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    counting.run_to_the_end()
    assert counting.change("--apply") == 0
    before, counting.provider = counting.provider, COWSTATE
    counting.in_batch.clear()
    counting.may_end.clear()
    query = counting.start()
    assert counting.in_batch.wait(120)
    counting.provider = before
    assert counting.change("--revert") == 2
    assert "the query seems to have been started" in capsys.readouterr().err
    counting.may_end.set()
    counting.feed("ac")
    query.processAllAvailable()
    assert counting.counts == {"a": 3, "b": 1, "c": 1}
