"""After a power failure the provider's files are on the disk, or the loss is detected.

A test imitates the result of a failure: files that nothing has forced to the disk are empty, or end
early. The JVM's flight recorder tells the forced files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.provider.provider_checkpoint import (
    committed_batches,
    read_changes,
    read_state,
)
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, PROVIDER_KEY
from tests.support.applications.streams import Stream, random_rows, totals_of
from tests.support.provider.provider_jobs import STATE_STORE, configured, maintenance_of
from tests.support.provider.provider_jvm import START, ProviderJvm, Tasks

pytestmark = pytest.mark.spark

FSYNC = f"{STATE_STORE}.cowstate.fsync"
UNSYNCED = "stateStore.cowstate.fsync=false"
STATE = Path("0/0")
Harm = Callable[[Path], object]
HARMS: dict[str, Harm] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
}
harms = pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)


def batch(version: int, number: int, seed: int) -> list[str]:
    return [f"begin {version}", f"put {number} 1:{seed}", "commit"]


def state_files(root: Path, pattern: str = "*.arrow") -> list[Path]:
    return sorted(root.glob(f"**/{pattern}"))


class SyncWatch:
    """A recorder of the files that the JVM forces to the disk from now on."""

    def __init__(self, provider_jvm: ProviderJvm) -> None:
        self._paths = provider_jvm.new("SyncedPaths")

    def end(self) -> list[Path]:
        """The forced files in order; a moved file has its later name."""
        listed = [Path(line) for line in str(self._paths.end()).splitlines()]
        return [path.with_name(re.sub(r"^\.(.*)\.tmp$", r"\1", path.name)) for path in listed]


class TestWhatIsForcedToTheDisk:
    def test_a_commit_forces_its_file_and_then_the_directory_and_those_above_once(
        self, tasks: Tasks, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        watch = SyncWatch(provider_jvm)
        tasks(START, *batch(0, 1, 1), *batch(1, 1, 2))
        first, second = state_files(tmp_path, "*.changelog.arrow")
        directory = tmp_path / STATE
        forced = watch.end()
        assert forced[:4] == [first, directory, directory.parent, tmp_path]
        assert forced[-2:] == [second, directory]

    def test_without_fsync_it_forces_nothing_but_what_others_are_deleted_for(
        self, tasks: Tasks, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        watch = SyncWatch(provider_jvm)
        start = f"{START} {UNSYNCED} stateStore.minDeltasForSnapshot=1"
        tasks(start, *batch(0, 1, 1), *batch(1, 1, 2), "maintain")
        forced = {path for path in watch.end() if path.suffix == ".arrow"}
        assert forced == {*state_files(tmp_path, "*.snapshot.arrow")}
        assert len(forced) == 1

    @pytest.mark.parametrize(("can_sync", "synced"), [("true", "1"), ("false", "0")])
    def test_through_a_file_manager_a_stream_is_synced_if_it_can_be(
        self, provider_jvm: ProviderJvm, tmp_path: Path, can_sync: str, synced: str
    ) -> None:
        lines = [f"can-sync {can_sync}", "write 1", "synced-streams", "restore 1"]
        results = provider_jvm.results("RestoreScript", tmp_path, *lines)
        assert results[2:] == [synced, "restored 1"]

    def test_what_says_where_a_state_is_and_who_writes_it_is_forced_before_the_first_changelog(
        self, provider_jvm: ProviderJvm, tmp_path: Path
    ) -> None:
        checkpoint = tmp_path / "checkpoint"
        watch = SyncWatch(provider_jvm)
        start = f"{START} stateStore.cowstate.store={tmp_path}/store"
        provider_jvm.results("ProviderScript", checkpoint / "state", start, "begin 0")
        (note,) = checkpoint.glob("state/cowstate-runs/[0-9a-f]*")
        forced = watch.end()
        for file in (checkpoint / "state" / "cowstate-store.json", note):
            begin = forced.index(file)
            assert forced[begin + 1].name == f".{file.name}.crc"
            above = [file.parent, file.parent.parent, file.parent.parent.parent]
            assert forced[begin + 2 : begin + 5] == above

    def test_a_wrong_value_is_refused(self, tasks: Tasks) -> None:
        with pytest.raises(Exception, match=r"cowstate\.fsync is 'yes'; allowed are true and fals"):
            tasks(f"{START} stateStore.cowstate.fsync=yes")


class TestABatchThatWasNotCommitted:
    """The changelog of the batch was not on the disk, and Spark asks for the version before."""

    def lines(self, tasks: Tasks, root: Path, harm: Harm) -> None:
        start = f"{START} stateStore.minDeltasForSnapshot=1"
        tasks(start, *batch(0, 1, 1), "maintain", *batch(1, 2, 2))
        (newest,) = state_files(root, f"{2:019}-*.changelog.arrow")
        harm(newest)

    @harms
    def test_runs_again_and_its_new_changes_count(
        self, tasks: Tasks, tmp_path: Path, harm: Harm
    ) -> None:
        self.lines(tasks, tmp_path, harm)
        again = [*batch(1, 3, 3), "maintain", START, "entries 2", "changes 1 2", "entries 1"]
        results = tasks(START, *again)
        assert results[-3:] == ["1=1:1 3=1:3", "0:1=1:1 1:3=1:3", "1=1:1"]
        generations = [
            int(file.name[20:30]) for file in state_files(tmp_path, f"{2:019}-*.changelog.arrow")
        ]
        assert generations == [1, 2]

    @harms
    def test_is_cleaned_with_its_version(self, tasks: Tasks, tmp_path: Path, harm: Harm) -> None:
        self.lines(tasks, tmp_path, harm)
        start = f"{START} stateStore.minDeltasForSnapshot=1 minBatchesToRetain=1"
        batches = [
            line for version in range(1, 12) for line in (*batch(version, 4, version), "maintain")
        ]
        results = tasks(start, *batches, START, "entries 12")
        assert results[-1] == "1=1:1 4=1:11"
        assert min(int(file.name[:19]) for file in state_files(tmp_path)) > 2


class TestFilesThatStandForOthers:
    """Reads ignore a damaged snapshot or merged file, and the damage causes no deletion."""

    SNAPSHOTS = f"{START} stateStore.minDeltasForSnapshot=1 minBatchesToRetain=1"

    @harms
    def test_a_snapshot_that_was_cut_is_none_of_those_that_are_kept(
        self, tasks: Tasks, tmp_path: Path, harm: Harm
    ) -> None:
        keys = [f"put 1-40 2:{seed}" for seed in range(2)]
        start = [self.SNAPSHOTS, "begin 0", keys[0], "commit", "maintain"]
        tasks(*start, "begin 1", keys[1], "commit", "begin 2", "commit")
        forced = ["begin-forced", "commit"]
        tasks(self.SNAPSHOTS, "begin 3", "commit", *forced)
        harm(state_files(tmp_path, "*.snapshot.arrow")[-1])
        more = [line for version in range(5, 9) for line in (f"begin {version}", "commit")]
        lines = [self.SNAPSHOTS, *more, *forced, "begin 10", "commit", "begin 11", "commit"]
        results = tasks(*lines, "maintain", "names")
        kept = [name for name in results[-1].split() if ".snapshot." in name]
        whole = [name for name in kept if (tmp_path / STATE / name).stat().st_size > 500]
        assert len(whole) >= 2
        newest = state_files(tmp_path, "*.snapshot.arrow")[-1]
        harm(newest)
        entries = tasks(self.SNAPSHOTS, "entries 12")[-1]
        assert entries == " ".join(sorted(f"{number}=2:1" for number in range(1, 41)))

    @harms
    def test_changelogs_stay_whose_merged_file_was_cut(
        self, tasks: Tasks, tmp_path: Path, harm: Harm
    ) -> None:
        retained = f"{START} minBatchesToRetain=2 stateStore.minDeltasForSnapshot=1"
        puts = [f"put {number} 20:{number}" for number in range(6000)]
        large = ["begin 0", *puts, "commit", "maintain"]
        small = [line for version in range(1, 70) for line in batch(version, version, version)]
        tasks(retained, *large, *small, "write-if-due")
        (merged,) = state_files(tmp_path, "*.merged.arrow")
        harm(merged)
        more = [line for version in range(70, 80) for line in batch(version, version, version)]
        tasks(retained, *more, "clean")
        *_, first, last, old = tasks(START, "get 80 1", "get 80 79", "get 80 5999")
        assert (first, last, old) == ("1:1", "1:79", "20:5999")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    with maintenance_of(spark):
        yield Stream(spark, tmp_path, settings={})


def run(stream: Stream, *, fsync: str, checkpoint_format: str, epochs: int) -> None:
    """Feed so many files, and run until all files are processed."""
    settings = {
        PROVIDER_KEY: PROVIDER_CLASS,
        FSYNC: fsync,
        f"{STATE_STORE}.checkpointFormatVersion": checkpoint_format,
    }
    for _ in range(epochs):
        stream.feed(random_rows(len(stream.fed), count=100, keys=30))
    totals = stream.source().groupBy("key").agg(F.count("*"), F.sum("value").alias("total"))
    with configured(stream.spark, settings):
        stream.run(totals.withColumnRenamed("count(1)", "rows"))


def changelogs_of(stream: Stream, versions: Sequence[int]) -> list[Path]:
    names = [f"{version:019d}-*.changelog.arrow" for version in versions]
    return [file for name in names for file in state_files(stream.checkpoint / "state", name)]


def state_without_spark(stream: Stream, batch: int) -> dict[str, tuple[int, int]]:
    state = read_state(open_object_store(str(stream.checkpoint)), batch).to_pylist()
    return {row["key"]["key"]: (*row["value"].values(),) for row in state}


formats = pytest.mark.parametrize("checkpoint_format", ["1", "2"])


class TestAQueryAfterAPowerFailure:
    def test_loses_nothing_with_fsync(self, provider_jvm: ProviderJvm, stream: Stream) -> None:
        how = {"fsync": "true", "checkpoint_format": "1"}
        watch = SyncWatch(provider_jvm)
        run(stream, **how, epochs=2)
        forced = set(watch.end())
        written = state_files(stream.checkpoint / "state")
        assert len(written) >= 2 * 2
        for file in written:
            if file not in forced:
                file.write_bytes(b"")
        run(stream, **how, epochs=1)
        assert stream.totals() == totals_of(stream.fed)

    @formats
    def test_runs_a_batch_again_that_was_not_committed(
        self, stream: Stream, checkpoint_format: str
    ) -> None:
        how = {"fsync": "false", "checkpoint_format": checkpoint_format}
        run(stream, **how, epochs=2)
        for file in changelogs_of(stream, [2]):
            HARMS["cut"](file)
        for name in ("1", ".1.crc"):
            (stream.checkpoint / "commits" / name).unlink(missing_ok=True)
        assert committed_batches(open_object_store(str(stream.checkpoint))) == [0]
        assert state_without_spark(stream, 0) == totals_of(stream.fed[:100])
        run(stream, **how, epochs=1)
        assert stream.totals() == totals_of(stream.fed)
        assert state_without_spark(stream, 2) == totals_of(stream.fed)

    @formats
    def test_says_from_which_batch_to_restart_if_batches_were_committed(
        self, stream: Stream, checkpoint_format: str
    ) -> None:
        """The last two batches were not on the disk."""
        how = {"fsync": "false", "checkpoint_format": checkpoint_format}
        run(stream, **how, epochs=3)
        for file in changelogs_of(stream, [2, 3]):
            HARMS["empty"](file)
        stream.feed(random_rows(len(stream.fed), count=100, keys=30))
        with pytest.raises(StreamingQueryException, match="CANNOT_LOAD_STATE_STORE") as raised:
            run(stream, **how, epochs=0)
        (told,) = set(re.findall(r"restart the query from batch (\d+) or an", str(raised.value)))
        stream.restart_from(int(told))
        run(stream, **how, epochs=0)
        assert told == "1"
        assert stream.totals() == totals_of(stream.fed)

    @formats
    def test_is_read_without_spark_up_to_what_is_whole(
        self, stream: Stream, checkpoint_format: str
    ) -> None:
        run(stream, fsync="false", checkpoint_format=checkpoint_format, epochs=2)
        checkpoint = open_object_store(str(stream.checkpoint))
        for file in changelogs_of(stream, [2]):
            file.write_bytes(b"")
        for read in (read_state, read_changes):
            assert read(checkpoint, 0).num_rows > 0
            with pytest.raises(CorruptObjectError, match="it is empty, as after a power failure"):
                read(checkpoint, 1)

    @formats
    def test_a_committed_version_that_is_gone_is_lost_though_a_later_one_was_begun(
        self, stream: Stream, checkpoint_format: str
    ) -> None:
        run(stream, fsync="false", checkpoint_format=checkpoint_format, epochs=2)
        for name in ("1", ".1.crc"):
            (stream.checkpoint / "commits" / name).unlink(missing_ok=True)
        for file in changelogs_of(stream, [2]):
            file.write_bytes(b"")
        for file in changelogs_of(stream, [1]):
            file.unlink()
        with pytest.raises(ObjectMissingError, match=f"{1:019d}"):
            read_state(open_object_store(str(stream.checkpoint)), 0)

    @pytest.mark.parametrize(
        ("log", "batch", "checkpoint_format"), [("commits", 2, "2"), ("offsets", 1, "1")]
    )
    def test_goes_on_as_the_docs_say_if_sparks_own_log_was_not_on_the_disk(
        self, stream: Stream, log: str, batch: int, checkpoint_format: str
    ) -> None:
        how = {"fsync": "true", "checkpoint_format": checkpoint_format}
        run(stream, **how, epochs=3)
        (stream.checkpoint / log / "2").write_bytes(b"")
        with pytest.raises(Exception, match=rf"{log}|[Ii]ncomplete|checksum"):
            run(stream, **how, epochs=1)
        stream.restart_from(batch)
        run(stream, **how, epochs=0)
        assert stream.totals() == totals_of(stream.fed)
