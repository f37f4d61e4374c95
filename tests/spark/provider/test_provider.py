"""The state store provider works for its users: turning the provider on, files, limits and
errors."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.provider_checkpoint import committed_batches, read_state
from spark_state import ConfigurationError
from spark_state.spark.provider import session_configuration as provider
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from spark_state.spark.provider.session_configuration import (
    check_spark_version,
    configure,
    jar_path,
)
from tests.support.applications.provider_application import totals
from tests.support.applications.streams import Stream, Totals, random_rows, totals_of
from tests.support.provider.provider_jobs import (
    STATE_STORE,
    THROUGH_MANAGER,
    configured,
    maintenance_of,
)

pytestmark = pytest.mark.spark
MAX_MEMORY = f"{STATE_STORE}.cowstate.maxMemoryMB"


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """A stream on the provider, with Spark's own settings."""
    settings = {PROVIDER_KEY: PROVIDER_CLASS, f"{STATE_STORE}.maintenanceInterval": "100ms"}
    with maintenance_of(spark):
        yield Stream(spark, tmp_path, settings)


def feed(stream: Stream, epochs: int, first: int = 0) -> None:
    for number in range(first, first + epochs):
        stream.feed(random_rows(number, count=100, keys=30))


def run(stream: Stream, **settings: str) -> StreamingQuery:
    stream.settings = {**stream.settings, **settings}
    query: StreamingQuery = stream.run(totals(stream))
    return query


def state_of(stream: Stream) -> Path:
    return stream.checkpoint / "state" / "0" / "0"


def files(stream: Stream, pattern: str) -> list[Path]:
    return sorted(state_of(stream).glob(pattern))


def state_read(spark: SparkSession, stream: Stream, batch: int) -> Totals:
    reader = spark.read.format("statestore").option("batchId", batch)
    rows = reader.load(str(stream.checkpoint)).collect()
    return {row.key.key: (row.value[0], row.value[1]) for row in rows}


def loads(query: StreamingQuery) -> int:
    """The number of batches that did not find their state in memory."""
    assert query.lastProgress is not None
    (operator,) = query.lastProgress["stateOperators"]
    misses: int = operator["customMetrics"]["loadedMapCacheMissCount"]
    return misses


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


class TestTurningItOn:
    def test_configure_adds_the_jar_to_those_that_are_there(self, spark: SparkSession) -> None:
        builder = SparkSession.Builder().config("spark.jars", f"/a.jar,{jar_path()}")
        options = configure(configure(builder))._options
        assert options["spark.jars"] == f"/a.jar,{jar_path()}"
        assert options[PROVIDER_KEY] == PROVIDER_CLASS

    def test_each_jar_is_added_once_and_those_that_the_jvm_was_launched_with_are_kept(
        self, tmp_path: Path
    ) -> None:
        theirs = [tmp_path / "submitted.jar", tmp_path / "built.jar"]
        for jar in theirs:
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr("content", "")
        program = (
            "import spark_state; from pyspark.sql import SparkSession\n"
            "builder = SparkSession.builder.master('local[1]')\n"
            f"builder = builder.config('spark.jars', '{theirs[1]}')\n"
            "builder = spark_state.configure(builder).appName('jars')\n"
            "spark = builder.config('spark.ui.enabled', 'false').getOrCreate()\n"
            "print(spark.sparkContext.appName, spark.sparkContext._jsc.sc().listJars())\n"
            "print(spark.sparkContext.getConf().get('spark.jars'))\n"
        )
        submitted = {"PYSPARK_SUBMIT_ARGS": f"--jars {theirs[0]} pyspark-shell"}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **submitted},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        added, set_jars = done.stdout.splitlines()
        name, listed = added.split(maxsplit=1)
        assert name == "jars"
        for jar in (*theirs, Path(jar_path())):
            assert jar.name in listed
        assert set_jars.split(",").count(jar_path()) == 1
        assert "has been added already" not in done.stderr

    def test_a_version_of_spark_without_support_is_refused(self) -> None:
        check_spark_version("4.2.7")
        with pytest.raises(ConfigurationError, match=r"this is Spark 4\.1\.1: pip install"):
            check_spark_version("4.1.1")

    def test_a_session_that_runs_without_the_jar_is_refused_with_the_way_out(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.jar"
        other.touch()
        monkeypatch.setattr(provider, "_JAR", other)
        with pytest.raises(ConfigurationError, match=r"call spark\.stop\(\) before configure"):
            configure(SparkSession.Builder())

    def test_a_missing_jar_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(provider, "_JAR", tmp_path / "none.jar")
        with pytest.raises(ConfigurationError, match=r"none\.jar is missing.*pip install -e"):
            configure(SparkSession.Builder())

    def test_a_server_of_spark_connect_that_runs_already_gets_no_jar_of_the_client(self) -> None:
        builder = configure(SparkSession.Builder().config("spark.remote", "sc://host"))
        assert set(builder._options) == {"spark.remote"}

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            (MAX_MEMORY, "much", f"{MAX_MEMORY} is 'much'; allowed are whole numbers from 1"),
            (f"{STATE_STORE}.cowstate.backend", "ram", "backend is .ram.; allowed"),
            (
                f"{STATE_STORE}.cowstate.maxMemory",
                "5",
                rf"cowstate.maxMemory is '5', and there is no .*: did you mean {MAX_MEMORY}\?",
            ),
            (f"{STATE_STORE}.cowstate.z", "5", f"z is '5', .*: the keys are {MAX_MEMORY}, "),
            (
                "spark.sql.streaming.stateSotre.cowstate.fsyn",
                "x",
                f"did you mean {STATE_STORE}.cowstate.fsync",
            ),
            ("spark.cowsate.enabled", "true", r"did you mean spark\.cowstate\.enabled"),
            (f"{STATE_STORE}.cowstat.storeOptions", '{"key": "abc"}', "storeOptions is set, and"),
        ],
    )
    def test_a_wrong_setting_is_found_where_the_query_starts_and_names_what_is_right(
        self, stream: Stream, key: str, value: str, message: str
    ) -> None:
        feed(stream, 1)
        with pytest.raises(IllegalArgumentException, match=message) as refused:
            run(stream, **{key: value})
        assert str(refused.value).startswith(f"{key} is ")


class TestFiles:
    def test_an_epoch_leaves_one_changelog_a_partition_that_pyarrow_reads(
        self, stream: Stream
    ) -> None:
        feed(stream, 2)
        run(stream)
        changelogs = files(stream, "*.changelog.arrow")
        assert [int(path.name[:19]) for path in changelogs] == [1, 2]
        with pa.ipc.open_file(str(changelogs[1])) as reader:
            table = reader.read_all()
        metadata = reader.schema.metadata or {}
        assert table.num_rows == int(metadata[b"cowstate.rows"])
        assert metadata[b"cowstate.base"].decode() == changelogs[0].name.split("-")[2]
        schemas = zlib.decompress(base64.b64decode(metadata[b"cowstate.schemas"]))
        (key,) = json.loads(schemas.splitlines()[0])["fields"]
        assert key["name"] == "key"
        assert {len(value) % 8 for value in table["value"].to_pylist()} == {0}

    def test_a_reader_leaves_a_running_query_its_state_and_reads_that(
        self, stream: Stream, spark: SparkSession
    ) -> None:
        feed(stream, 2)
        writer = totals(stream).writeStream.foreachBatch(stream.keep).outputMode("update")
        with configured(spark, stream.settings):
            query = writer.option("checkpointLocation", str(stream.checkpoint)).start()
        try:
            query.processAllAvailable()
            restored = loads(query)
            for number in range(2, 4):
                assert state_read(spark, stream, batch=number - 1) == totals_of(stream.fed)
                feed(stream, 1, first=number)
                query.processAllAvailable()
            assert loads(query) == restored
            # The names of files do not change, so a reader uses the state in memory.
            for path in stream.checkpoint.glob("state/0/*/*.arrow"):
                flip_a_byte(path)
            assert state_read(spark, stream, batch=3) == totals_of(stream.fed)
        finally:
            query.stop()

    def test_a_chosen_checkpoint_file_manager_is_used(self, stream: Stream) -> None:
        for first in (0, 2):
            feed(stream, 2, first=first)
            run(stream, **THROUGH_MANAGER)
        assert stream.totals() == totals_of(stream.fed)
        assert list(state_of(stream).glob(".*.changelog.arrow.crc"))


class TestDamage:
    @pytest.mark.parametrize("lost", [4, 2])
    def test_a_query_that_lost_a_version_goes_on_from_an_earlier_batch(
        self, stream: Stream, lost: int
    ) -> None:
        feed(stream, 4)
        run(stream)
        (victim,) = files(stream, f"{lost:019d}-*")
        victim.unlink()
        feed(stream, 1, first=4)
        with pytest.raises(StreamingQueryException) as raised:
            run(stream)
        assert "Restart from an earlier batch" in str(raised.value)
        assert "cowstate adopt" not in str(raised.value)
        stream.restart_from(lost - 1)
        run(stream)
        assert stream.totals() == totals_of(stream.fed)
        checkpoint = open_object_store(str(stream.checkpoint))
        state = read_state(checkpoint, committed_batches(checkpoint)[-1]).to_pylist()
        totals_read = {row["key"]["key"]: (*row["value"].values(),) for row in state}
        assert totals_read == totals_of(stream.fed)

    def test_a_directory_that_cannot_be_written_fails_the_batch_and_nothing_is_lost(
        self, stream: Stream
    ) -> None:
        feed(stream, 2)
        run(stream)
        moved = state_of(stream).rename(stream.folder / "moved")
        state_of(stream).touch()
        feed(stream, 1, first=2)
        with pytest.raises(
            StreamingQueryException, match=f"not a directory: file:{state_of(stream)}"
        ):
            run(stream)
        state_of(stream).unlink()
        moved.rename(state_of(stream))
        run(stream)
        assert stream.totals() == totals_of(stream.fed)


def executor_bytes(spark: SparkSession) -> int:
    """Bytes of all states that the executor holds."""
    ours: Any = spark._jvm.org.apache.spark.sql.execution.streaming.state.cowstate
    return int(ours.memory.MemoryAccount.executorBytes())


class TestMemory:
    def test_too_much_state_is_a_clear_error_and_a_higher_limit_goes_on(
        self, stream: Stream
    ) -> None:
        # States of earlier tests count until Spark's maintenance closes their providers.
        limit_mib = 1 + (executor_bytes(stream.spark) >> 20)
        stream.feed([(f"key{number}", number) for number in range(100)])
        run(stream, **{MAX_MEMORY: str(limit_mib)})
        stream.feed([(f"key{number}", number) for number in range(60_000)])
        told = (
            rf"would take {limit_mib}\.[0-9] MiB, more than {MAX_MEMORY} = {limit_mib}\. "
            r"This store holds [01]\.[0-9] MiB of it\. Nothing"
        )
        with pytest.raises(StreamingQueryException, match=told):
            run(stream)
        run(stream, **{MAX_MEMORY: "100"})
        assert stream.totals() == totals_of(stream.fed)

    def test_the_state_of_a_run_that_has_ended_leaves_its_room_to_the_next(
        self, stream: Stream
    ) -> None:
        settings = {f"{STATE_STORE}.maintenanceInterval": "1h", MAX_MEMORY: "12"}
        for round_ in range(3):
            stream.feed([(f"key{number}", round_) for number in range(60_000)])
            (operator,) = run(stream, **settings).recentProgress[-1].stateOperators
            assert operator.memoryUsedBytes > 5 << 20
        assert stream.totals() == totals_of(stream.fed)

    def test_progress_says_what_the_state_takes(self, stream: Stream) -> None:
        keys, key_bytes, value_bytes = 150_000, 32, 24
        for _ in range(2):
            stream.feed([(f"key{number:06d}", number) for number in range(keys)])
        query = run(stream)
        (operator,) = query.recentProgress[-1].stateOperators
        assert operator.numRowsTotal == keys
        records = keys * (32 + key_bytes + value_bytes)
        undo = keys * (16 + key_bytes + value_bytes)
        tables = 2 * 8 * 131_072
        assert operator.memoryUsedBytes == pytest.approx(records + undo + tables, rel=0.1)
        metrics = dict(operator.customMetrics)
        assert metrics["cowstateChangelogBytes"] > 0
        assert metrics["cowstatePages"] > 0
        assert metrics["cowstateRehashPercent"] == 200
