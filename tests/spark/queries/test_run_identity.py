"""Each run of a query has a distinct identity, whatever user code sets in the query's thread.

A restart in these tests is a query that is started again on its checkpoint, so the query gets
another run id. A rollback repeats committed batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from checkpoint_store import open_store
from checkpoint_store.epochs.operator_layout import parse_run
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.tables.table_jobs import write

pytestmark = pytest.mark.spark

Label = Callable[[SparkContext], None]

LABELS: dict[str, Label] = {
    "a name": lambda context: context.setJobGroup("etl", "a step of it"),
    "a UUID": lambda context: context.setJobGroup(str(uuid4()), "a step of it"),
    "nothing": lambda context: context._jsc.clearJobGroup(),
    "the query": lambda context: context.setJobGroup(
        str(context.getLocalProperty("sql.streaming.queryId")), "of the query"
    ),
}


def feed(stream: Stream, files: int) -> None:
    for _ in range(files):
        stream.feed(random_rows(len(stream.fed), count=60, keys=20))


@pytest.mark.parametrize("label", LABELS)
def test_operators_and_tables_survive_restarts_and_rollbacks_under_any_job_group(
    stream: Stream, tmp_path: Path, label: str
) -> None:
    table = str(tmp_path / "table")

    def sink(batch: DataFrame, epoch: int) -> None:
        LABELS[label](batch.sparkSession.sparkContext)
        write(batch, table, keys="key")

    feed(stream, 2)
    stream.run(sink=sink)
    stream.roll_back(stream.committed() - 1)
    stream.run(sink=sink)
    feed(stream, 1)
    stream.run(sink=sink)
    stream.roll_back(1)
    stream.run(sink=sink)
    rows = open_store(table).read().to_pylist()
    written = {row["key"]: (row["rows"], row["total"]) for row in rows}
    assert written == totals_of(stream.fed)
    assert [info.version for info in open_store(table).versions()] == [0, 1, 2]
    assert stream.stored() == totals_of(stream.fed)
    names = [parse_run(f"runs/{path.name}") for path in (stream.store() / "runs").iterdir()]
    run_ids = {name.run.run_id for name in names if name}
    assert sum(not run_id.startswith("back-") for run_id in run_ids) == 4


@pytest.mark.parametrize("writes_table", [False, True], ids=["operator", "table"])
def test_where_nobody_names_the_run_each_label_is_refused_and_the_way_out_is_said(
    stream: Stream, tmp_path: Path, writes_table: bool
) -> None:
    def describe(context: SparkContext) -> None:
        context.setJobDescription("etl")

    def act(batch: DataFrame) -> None:
        if writes_table:
            write(batch, str(tmp_path / "table"), keys="key")
        else:
            batch.collect()

    told: list[str] = []

    def sink(batch: DataFrame, epoch: int) -> None:
        # A job group hides a description, so the description comes first.
        for label in (describe, *LABELS.values()):
            label(batch.sparkSession.sparkContext)
            with pytest.raises(PySparkException, match="which run of query") as caught:
                act(batch)
            told.append(str(caught.value))

    feed(stream, 1)
    stream.run_unseen(sink, stream.source() if writes_table else None)
    assert len(told) == 1 + len(LABELS)
    for message in told:
        assert "label jobs with sc.addJobTag(tag) or spark.addTag(tag), not with" in message
        assert "spark_state.configure" in message


def test_labels_that_are_recommended_do_no_harm(spark: SparkSession, stream: Stream) -> None:
    def sink(batch: DataFrame, epoch: int) -> None:
        context = batch.sparkSession.sparkContext
        context.addJobTag("etl")
        batch.sparkSession.addTag("etl-step")
        batch.collect()

    feed(stream, 2)
    stream.run_unseen(sink)
    feed(stream, 1)
    stream.run_unseen(sink)
    assert stream.stored() == totals_of(stream.fed)


def test_a_query_that_is_started_in_a_function_is_a_run_of_its_own(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    inner = Stream(spark, tmp_path / "inner")
    feed(inner, 2)
    feed(stream, 1)

    def sink(batch: DataFrame, epoch: int) -> None:
        batch.collect()
        inner.run_unseen(inner.keep)

    outer_query = stream.run(sink=sink)
    names = [parse_run(f"runs/{path.name}") for path in (inner.store() / "runs").iterdir()]
    (run,) = {name.run for name in names if name is not None}
    assert run.run_id != outer_query.runId
    assert inner.stored() == totals_of(inner.fed)
