"""A new query begins with the state of an older query through `spark.cowstate.restoreFrom`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_state
from spark_state.errors import ConfigurationError
from tests.support.applications.streams import Stream
from tests.support.processors.processors import TOTALS_SCHEMA, RunningTotals
from tests.support.provider.provider_jobs import configured

pytestmark = pytest.mark.spark

RESTORE = "spark.cowstate.restoreFrom"


@pytest.fixture(scope="module")
def old(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """A stream after two epochs of totals."""
    stream = Stream(spark, tmp_path_factory.mktemp("old"))
    for rows in ([("a", 1), ("b", 2)], [("a", 3)]):
        stream.feed(rows)
    stream.run(stream.operator(name="totals"))
    return stream


def test_it_goes_on_with_the_old_state_and_then_with_its_own(
    spark: SparkSession, tmp_path: Path, old: Stream
) -> None:
    kept = tmp_path / "moved" / "totals"
    shutil.copytree(old.store(), kept)
    new = Stream(spark, tmp_path)
    new.feed([("a", 10), ("c", 5)])
    with configured(spark, {RESTORE: str(kept.parent)}):
        new.run(new.operator(name="totals"))
    assert new.totals() == {"a": (3, 14), "c": (1, 5)}
    shutil.rmtree(kept)
    new.feed([("a", 1), ("b", 1)])
    with configured(spark, {"spark.cowstate.parallelism": "3"}):
        new.run(new.operator(name="totals"))
    assert new.totals() == {"a": (4, 15), "b": (2, 3), "c": (1, 5)}


def test_another_number_of_key_groups_is_refused(
    spark: SparkSession, tmp_path: Path, old: Stream
) -> None:
    settings = {RESTORE: str(old.store()), "spark.cowstate.maxParallelism": "64"}
    with (
        configured(spark, settings),
        pytest.raises(ConfigurationError, match=r"has 128 key groups, and .* is 64: set"),
    ):
        Stream(spark, tmp_path).operator(name="totals")


def test_another_key_is_refused(spark: SparkSession, tmp_path: Path, old: Stream) -> None:
    grouped = Stream(spark, tmp_path).source().groupBy("value")
    with (
        configured(spark, {RESTORE: str(old.store())}),
        pytest.raises(ConfigurationError, match=r"has the key \(key string\), and the operator"),
    ):
        spark_state.transform_with_state(grouped, RunningTotals(), TOTALS_SCHEMA, "update", "None")


def test_two_operators_begin_with_one_epoch_of_a_query_that_goes_on(
    spark: SparkSession, tmp_path: Path, old: Stream
) -> None:
    query = tmp_path / "query"
    shutil.copytree(old.store(), query / "totals")
    behind, store = query / "others", old.store()
    shutil.copytree(store, behind)
    # An epoch may have two manifests: both subtasks may be the last subtask at once.
    newest = max(store.glob("epochs/*")).name
    for manifest in behind.glob(f"manifests/{newest}-*"):
        manifest.unlink()
    shutil.rmtree(behind / "epochs" / newest)
    new = Stream(spark, tmp_path)
    new.feed([("a", 10)])
    with configured(spark, {RESTORE: str(query)}):
        totals = new.operator(name="totals")
        shutil.copytree(store, behind, dirs_exist_ok=True)
        others = new.operator(name="others")
        again = new.operator(name="others")
    new.run(totals.union(others.repartition(2)))
    assert sorted(new.kept()) == [(0, "a", 2, 11), (0, "a", 2, 11)]
    with pytest.raises(ConfigurationError, match=r"epoch 0 of it, and others .*epoch 1"):
        totals.union(again).writeStream.format("noop").start()
