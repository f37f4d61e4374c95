"""Queries with state in an object store give the same rows and state as queries without."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from checkpoint_store import ProviderStore, open_store
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.state_place import state_place
from checkpoint_store.state_reader import StateReader
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.adoption_jobs import AGGREGATION, FORMAT_2, JOBS, JOIN, SNAPSHOTS, Seen
from tests.support.provider.provider_inputs import EventShape, write_batches
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    STATE_STORE,
    THROUGH_MANAGER,
    Options,
    ProviderRun,
    configured,
    maintenance_of,
    run_together_with_restart,
)
from tests.support.provider.provider_stores import (
    RETRY_SECONDS,
    StorePlace,
    directory_store,
    s3_store,
)
from tests.support.stores.moto_s3 import S3Server

pytestmark = pytest.mark.spark

SHAPE = EventShape(rows=60, keys=20)
BATCHES = 4
FEW_BATCHES = {"spark.sql.streaming.minBatchesToRetain": "2"}


def flipped(data: bytes) -> bytes:
    """The data with another bit in the middle."""
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    if request.param == "S3":
        return s3_store(request.getfixturevalue("s3"))
    return directory_store(tmp_path / "store")


def state_in_checkpoint(checkpoint: Path) -> list[Path]:
    return [path for path in checkpoint.glob("state/**/*.arrow") if path.is_file()]


@pytest.mark.parametrize("name", [AGGREGATION, "session windows", JOIN])
def test_operators_give_what_they_do_on_hdfs_and_go_on_after_a_restart(
    spark: SparkSession, tmp_path: Path, s3: S3Server, name: str
) -> None:
    """The aggregation writes snapshots and deletes files; the other jobs have ids of states."""
    left = write_batches(tmp_path / "left", 31, BATCHES, SHAPE)
    right = write_batches(tmp_path / "right", 32, BATCHES, SHAPE)
    settings = SNAPSHOTS if name == AGGREGATION else FORMAT_2
    in_store = {**settings, **s3_store(s3).settings}
    runs = [
        ProviderRun(spark, JOBS[name], COWSTATE, tmp_path / "ours", in_store),
        ProviderRun(spark, JOBS[name], HDFS, tmp_path / "theirs", THROUGH_MANAGER),
    ]
    with maintenance_of(spark):
        run_together_with_restart(runs, left, right)
        ours, theirs = (Seen.of(run) for run in runs)
    assert ours == theirs
    assert not state_in_checkpoint(runs[0].checkpoint)


class TestAnAggregation:
    @pytest.fixture
    def stream(self, spark: SparkSession, tmp_path: Path, store: StorePlace) -> Stream:
        settings = {PROVIDER_KEY: PROVIDER_CLASS, **SNAPSHOTS, **FEW_BATCHES, **store.settings}
        return Stream(spark, tmp_path, settings)

    def feed_and_run(self, stream: Stream, batches: int) -> Any:
        for _ in range(batches):
            stream.feed(random_rows(len(stream.fed), count=100, keys=30))
        with maintenance_of(stream.spark):
            return stream.run(totals(stream))

    @pytest.mark.parametrize("store", ["S3"], indirect=True)
    def test_it_counts_every_row_once_over_restarts_and_keeps_few_files(
        self, stream: Stream, store: StorePlace
    ) -> None:
        for batches in (4, 3, 5):
            self.feed_and_run(stream, batches)
            assert stream.totals() == totals_of(stream.fed)
        place = state_place(open_object_store(str(stream.checkpoint)))
        assert place is not None
        assert place.url == store.url
        files = store.objects.list(f"{place.directory}/state/0/0")
        names = [info.name.rpartition("/")[2] for info in files]
        assert any(name.endswith(".snapshot.arrow") for name in names)
        assert min(int(name[:19]) for name in names) > 1
        assert not state_in_checkpoint(stream.checkpoint)

    @pytest.mark.parametrize("store", ["a directory"], indirect=True)
    def test_it_goes_on_where_each_task_gives_up_its_state(self, stream: Stream) -> None:
        stream.settings = {**stream.settings, f"{STATE_STORE}.unloadOnCommit": "true"}
        query = self.feed_and_run(stream, 3)
        assert stream.totals() == totals_of(stream.fed)
        (operator,) = query.lastProgress["stateOperators"]
        assert operator["customMetrics"]["cowstateChangelogBytes"] > 0


class Finished:
    """A finished query, and its readers."""

    def __init__(self, run: ProviderRun, store: StorePlace) -> None:
        self.run = run
        self.store = store
        self.newest = run.batches[-1]

    def by_spark(self, **options: str) -> list[str]:
        """The rows of a state in order, read by Spark's own reader."""
        with configured(self.run.spark, self.store.access):
            state = self.run.read_state(options).select("key.*", "value.*")
            return in_order(state.toArrow())

    def by_python(self, **choice: Any) -> StateReader:
        state = ProviderStore(**choice) if choice else None
        return open_store(str(self.run.checkpoint), self.store.readable, state)


def in_order(rows: pa.Table) -> list[str]:
    """The rows as text, without the names of columns."""
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


@pytest.fixture(scope="module")
def finished(
    spark: SparkSession, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Finished]:
    @cache
    def run(name: str) -> Finished:
        folder, store = tmp_path_factory.mktemp("finished"), s3_store(s3)
        settings = {**FORMAT_2, **store.settings}
        query = ProviderRun(spark, JOBS[name], COWSTATE, folder / "run", settings)
        left = write_batches(folder / "left", 41, BATCHES, SHAPE)
        query.run(left, write_batches(folder / "right", 42, BATCHES, SHAPE))
        return Finished(query, store)

    return run


class TestReaders:
    """Readers follow the checkpoint to its store, in sessions that name no store."""

    def test_the_table_is_what_sparks_reader_finds(
        self, finished: Callable[[str], Finished]
    ) -> None:
        ended = finished(AGGREGATION)
        reader = ended.run.spark.read.format("cowstate")
        options = json.dumps(dict(ended.store.options))
        table = reader.option("storageOptions", options).load(str(ended.run.checkpoint))
        rows = in_order(table.toArrow())
        assert len(rows) > 10
        assert rows == ended.by_spark()

    def test_python_reads_the_newest_state_old_ones_and_changes(
        self, finished: Callable[[str], Finished]
    ) -> None:
        ended = finished(AGGREGATION)
        reader = ended.by_python()
        assert [info.version for info in reader.versions()] == [*ended.run.batches]
        for version in (1, ended.newest):
            assert in_order(reader.read(version)) == ended.by_spark(batchId=str(version))
        assert reader.changes(0, 1).num_rows > 0

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_a_join_has_its_stores_there(
        self, finished: Callable[[str], Finished], side: str
    ) -> None:
        ended = finished(JOIN)
        rows = in_order(ended.by_python(join_side=side).read())
        assert rows
        assert rows == ended.by_spark(storeName=f"{side}-keyWithIndexToValue")


class TestOutages:
    def test_a_store_that_is_away_for_long_fails_the_batch_and_the_query_goes_on_later(
        self, spark: SparkSession, tmp_path: Path, s3: S3Server
    ) -> None:
        settings = {PROVIDER_KEY: PROVIDER_CLASS, **THROUGH_MANAGER, **s3_store(s3).settings}
        stream = Stream(spark, tmp_path, {**settings, RETRY_SECONDS: "3"})
        stream.feed(random_rows(1, count=50, keys=20))
        stream.run(totals(stream))
        stream.feed(random_rows(2, count=50, keys=20))
        with s3.away(), pytest.raises(StreamingQueryException) as raised:
            stream.run(totals(stream))
        told = str(raised.value)
        assert "is unavailable" in told
        assert "storeRetrySeconds says how long an outage may last" in told
        stream.run(totals(stream))
        assert stream.totals() == totals_of(stream.fed)

    def test_a_store_that_is_back_in_time_is_waited_for(
        self, spark: SparkSession, tmp_path: Path, s3: S3Server
    ) -> None:
        settings = {PROVIDER_KEY: PROVIDER_CLASS, **THROUGH_MANAGER, **s3_store(s3).settings}
        stream = Stream(spark, tmp_path, settings)
        stream.feed(random_rows(1, count=50, keys=20))
        stream.run(totals(stream))
        stream.feed(random_rows(2, count=50, keys=20))
        with ThreadPoolExecutor(1) as pool:
            with s3.away():
                running = pool.submit(stream.run, totals(stream))
                time.sleep(4)
                assert not running.done()
            running.result()
        assert stream.totals() == totals_of(stream.fed)


@pytest.mark.parametrize("store", ["a directory"], indirect=True)
class TestDamagedObjects:
    """Objects whose bytes have changed since their put."""

    def stream(self, spark: SparkSession, folder: Path, settings: Options) -> Stream:
        stream = Stream(spark, folder, {PROVIDER_KEY: PROVIDER_CLASS, **settings})
        for number in range(4):
            stream.feed(random_rows(number, count=100, keys=30))
        with maintenance_of(spark):
            stream.run(totals(stream))
        return stream

    def damage(self, store: StorePlace, stream: Stream, kind: str, harm: Any) -> None:
        """Damage all files of a kind, in both partitions."""
        place = state_place(open_object_store(str(stream.checkpoint)))
        assert place is not None
        files = [
            info.name
            for partition in range(2)
            for info in store.objects.list(f"{place.directory}/state/0/{partition}")
            if kind in info.name
        ]
        assert len(files) >= 2
        for name in files:
            data = store.objects.get(name)
            store.objects.delete([name])
            store.objects.put(name, harm(data))

    def test_snapshots_are_passed_over(
        self, spark: SparkSession, tmp_path: Path, store: StorePlace
    ) -> None:
        stream = self.stream(spark, tmp_path, {**SNAPSHOTS, **store.settings})
        self.damage(store, stream, ".snapshot.", torn)
        stream.feed(random_rows(5, count=100, keys=30))
        query = stream.run(totals(stream))
        repaired = [
            progress["stateOperators"][0]["customMetrics"]["numSnapshotsAutoRepaired"]
            for progress in query.recentProgress
        ]
        assert max(repaired) > 0
        assert stream.totals() == totals_of(stream.fed)

    def test_changelogs_of_the_newest_batch_are_named_with_the_batch_to_restart_from(
        self, spark: SparkSession, tmp_path: Path, store: StorePlace
    ) -> None:
        stream = self.stream(spark, tmp_path, {**THROUGH_MANAGER, **store.settings})
        before = stream.totals()
        self.damage(store, stream, f"/{4:019}-", flipped)
        stream.feed(random_rows(5, count=100, keys=30))
        with pytest.raises(StreamingQueryException, match="CANNOT_LOAD_STATE_STORE") as raised:
            stream.run(totals(stream))
        told = str(raised.value)
        assert re.search(rf"{4:019}-[-0-9a-f]+\.changelog\.arrow", told)
        assert set(re.findall(r"restart the query from batch (\d+) or an", told)) == {"3"}
        assert stream.totals() == before
        stream.restart_from(3)
        stream.run(totals(stream))
        assert stream.totals() == totals_of(stream.fed)
