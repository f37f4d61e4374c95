"""A query goes on as before after its checkpoint changes the state store provider."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from cowstate.cli.command_line import main
from tests.support.applications.lost_commits import delete, forget_last_commit
from tests.support.provider.adoption_jobs import (
    AGGREGATION,
    CHANGELOG,
    FORMAT_2,
    JOBS,
    JOIN,
    ROW_CHECKSUMS,
    SEGMENTS,
    SNAPSHOTS,
    Adopted,
    FirstSegments,
    Seen,
    Uninterrupted,
    contents,
    damage,
    provider_of_last_batch,
)
from tests.support.provider.provider_jobs import (
    COWSTATE,
    HDFS,
    ROCKSDB,
    THROUGH_MANAGER,
    Options,
    ProviderRun,
)

pytestmark = pytest.mark.spark


# test_row_checksums_stay_through_every_change takes session windows the same way.
@pytest.mark.parametrize("name", sorted(JOBS.keys() - {"session windows"}))
def test_a_query_goes_on_from_hdfs_to_cowstate_and_back_as_if_uninterrupted(
    first_segments: FirstSegments, tmp_path: Path, uninterrupted: Uninterrupted, name: str
) -> None:
    query = first_segments.copy(name, HDFS, tmp_path, SNAPSHOTS)
    assert list(query.checkpoint.glob("state/**/[0-9]*.delta"))
    query.run.settings = THROUGH_MANAGER
    query.adopt()
    query.go_on(SEGMENTS[1])
    query.go_on(SEGMENTS[2])
    query.adopt("--to", "hdfs")
    query.go_on(SEGMENTS[3])
    assert Seen.of(query.run) == uninterrupted(name)


@pytest.mark.parametrize(("name", "settings"), [(AGGREGATION, THROUGH_MANAGER), (JOIN, CHANGELOG)])
def test_a_query_goes_on_from_rocksdb_to_cowstate_and_to_hdfs_as_if_uninterrupted(
    first_segments: FirstSegments,
    tmp_path: Path,
    uninterrupted: Uninterrupted,
    name: str,
    settings: Options,
) -> None:
    query = first_segments.copy(name, ROCKSDB, tmp_path, settings)
    query.adopt()
    query.go_on(SEGMENTS[1])
    query.go_on(SEGMENTS[2])
    query.adopt("--to", "hdfs")
    query.go_on(SEGMENTS[3])
    assert Seen.of(query.run) == uninterrupted(name)


def test_a_converted_batch_has_no_change_feed_and_the_error_says_from_when_on_there_is_one(
    first_segments: FirstSegments, tmp_path: Path
) -> None:
    query = first_segments.copy(AGGREGATION, ROCKSDB, tmp_path, THROUGH_MANAGER)
    converted = query.run.batches[-1]
    query.adopt()
    query.go_on(1)

    def changes(first: int) -> int:
        options = {
            "readChangeFeed": "true",
            "changeStartBatchId": str(first),
            "changeEndBatchId": str(query.run.batches[-1]),
        }
        return query.run.read_state(options).count()

    assert changes(converted + 1) > 0
    with pytest.raises(Py4JJavaError) as raised:
        changes(converted)
    told = str(raised.value)
    assert f"which batch {converted} made, are not known: its state was converted by" in told
    assert f"There is a change feed from batch {converted + 1} on" in told
    assert "are missing" not in told


@pytest.mark.parametrize("provider", [HDFS, ROCKSDB])
def test_row_checksums_stay_through_every_change(
    first_segments: FirstSegments, tmp_path: Path, uninterrupted: Uninterrupted, provider: str
) -> None:
    query = first_segments.copy("session windows", provider, tmp_path, ROW_CHECKSUMS)
    query.adopt()
    query.go_on(SEGMENTS[1])
    assert_all_rows_carry_checksums(newest_changelogs(query.checkpoint))
    query.go_on(SEGMENTS[2])
    query.adopt("--to", "hdfs")
    query.go_on(SEGMENTS[3])
    assert Seen.of(query.run) == uninterrupted("session windows")


def newest_changelogs(checkpoint: Path) -> list[Path]:
    stores = {file.parent for file in checkpoint.glob("state/0/[0-9]*/*.changelog.arrow")}
    return [max(store.glob("*.changelog.arrow")) for store in sorted(stores)]


def assert_all_rows_carry_checksums(files: list[Path]) -> None:
    assert files
    for file in files:
        with pa.ipc.open_file(str(file)) as reader:
            assert reader.read_all()["checksum"].null_count == 0


def test_a_rocksdb_checkpoint_of_format_2_keeps_its_format_and_cannot_go_on_to_hdfs(
    first_segments: FirstSegments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    uninterrupted: Uninterrupted,
) -> None:
    query = first_segments.copy(JOIN, ROCKSDB, tmp_path, FORMAT_2)
    with_ids_of_rocksdb = contents(query.checkpoint / "commits")
    query.adopt()
    assert contents(query.checkpoint / "commits") == with_ids_of_rocksdb
    for batches in SEGMENTS[1:]:
        query.go_on(batches)
    assert Seen.of(query.run) == uninterrupted(JOIN)
    before = contents(query.checkpoint)
    assert main(["adopt", str(query.checkpoint), "--to", "hdfs", "--apply", "--force"]) == 2
    assert "has checkpoint format 2" in capsys.readouterr().err
    assert contents(query.checkpoint) == before


def test_the_adopted_state_of_format_2_is_found_by_rocksdbs_ids(
    first_segments: FirstSegments, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    query = first_segments.copy(AGGREGATION, ROCKSDB, tmp_path, FORMAT_2)
    last_batch = query.run.batches[-1]
    before = Seen.of(query.run).states[last_batch]
    query.adopt()
    assert Seen.of(query.run).states[last_batch] == before
    table = query.run.spark.read.format("cowstate").load(str(query.checkpoint))
    assert table.count() == len(before)
    query.adopt("--store", (tmp_path / "store").as_uri())
    query.go_on(SEGMENTS[1])
    query.adopt("--store", "checkpoint")
    for batches in SEGMENTS[2:]:
        query.go_on(batches)
    assert Seen.of(query.run) == uninterrupted(AGGREGATION)


@pytest.mark.parametrize(("provider", "partly"), [(HDFS, True), (ROCKSDB, False)])
def test_a_batch_that_was_not_committed_runs_again_from_the_state_before_it(
    first_segments: FirstSegments,
    tmp_path: Path,
    uninterrupted: Uninterrupted,
    provider: str,
    partly: bool,
) -> None:
    query = first_segments.copy(AGGREGATION, provider, tmp_path, THROUGH_MANAGER)
    for batches, target in (SEGMENTS[1], ()), (SEGMENTS[2], ("--to", "hdfs")):
        interrupted = forget_last_commit(query.checkpoint)
        if partly:
            begins = re.compile(f"0*{interrupted + 1}[.-]")
            files = (query.checkpoint / "state" / "0" / "1").iterdir()
            (newest,) = (file for file in files if begins.match(file.name))
            delete(newest)
        query.adopt(*target)
        query.go_on(batches)
    query.go_on(SEGMENTS[3])
    assert Seen.of(query.run) == uninterrupted(AGGREGATION)


def test_files_left_from_an_earlier_time_on_cowstate_are_not_taken_for_state(
    first_segments: FirstSegments, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    """A revert abandons cowstate's attempt at a batch; then HDFS makes the same version."""
    query = first_segments.copy(AGGREGATION, HDFS, tmp_path, THROUGH_MANAGER)
    forget_last_commit(query.checkpoint)
    query.adopt()
    with pytest.raises(StreamingQueryException, match="abandoned"):
        fail_after_the_state_is_written(query.run)
    leftovers = [f for f in query.checkpoint.glob("state/**/*.arrow") if f.is_file()]
    assert leftovers
    assert main(["adopt", str(query.checkpoint), "--revert", "--force"]) == 0
    query.run.provider = HDFS
    query.run.run([], [])
    query.adopt()
    assert not [file for file in leftovers if file.exists()]
    for batches in SEGMENTS[1:]:
        query.go_on(batches)
    assert Seen.of(query.run) == uninterrupted(AGGREGATION)


def fail_after_the_state_is_written(run: ProviderRun) -> None:
    """Start the query with a sink that fails when its batch is computed."""
    collect = run._collect

    def fail(batch: DataFrame, number: int) -> None:
        batch.collect()
        raise RuntimeError("abandoned")

    run._collect = fail  # type: ignore[method-assign]
    try:
        run.run([], [])
    finally:
        run._collect = collect  # type: ignore[method-assign]


class TestDamage:
    @pytest.fixture
    def query(self, first_segments: FirstSegments, tmp_path: Path) -> Adopted:
        query = first_segments.copy(AGGREGATION, HDFS, tmp_path, SNAPSHOTS)
        query.run.settings = THROUGH_MANAGER
        return query

    def test_a_damaged_delta_fails_the_query_and_its_copy_heals_it(
        self, query: Adopted, uninterrupted: Uninterrupted
    ) -> None:
        for file in query.checkpoint.glob("state/0/*/*.snapshot"):
            delete(file)
        victim = query.checkpoint / "state/0/0/2.delta"
        whole = victim.read_bytes()
        damage(victim)
        query.adopt()
        with pytest.raises(StreamingQueryException, match=r"2\.delta is damaged"):
            query.go_on(SEGMENTS[1])
        victim.write_bytes(whole)
        query.run.run([], [])
        for batches in SEGMENTS[2:]:
            query.go_on(batches)
        assert Seen.of(query.run) == uninterrupted(AGGREGATION)

    def test_a_damaged_snapshot_is_passed_over_for_the_deltas(
        self, query: Adopted, uninterrupted: Uninterrupted
    ) -> None:
        snapshots = list(query.checkpoint.glob("state/0/*/*.snapshot"))
        assert snapshots
        query.adopt()
        for file in snapshots:
            damage(file)
        for batches in SEGMENTS[1:]:
            query.go_on(batches)
        assert Seen.of(query.run) == uninterrupted(AGGREGATION)

    @pytest.mark.parametrize(
        ("provider", "batch"),
        [(ROCKSDB, "a batch before it"), (COWSTATE, "batch 1 or an earlier one")],
    )
    def test_state_that_cannot_be_read_is_not_converted_and_nothing_changes(
        self,
        first_segments: FirstSegments,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        provider: str,
        batch: str,
    ) -> None:
        query = first_segments.copy(AGGREGATION, provider, tmp_path, CHANGELOG)
        files = query.checkpoint.glob("state/0/1/*[!c]")
        (victim,) = (file for file in files if re.match(r"0*2[.-]", file.name))
        damage(victim)
        before = contents(query.checkpoint)
        to = [] if provider == ROCKSDB else ["--to", "hdfs"]
        assert main(["adopt", str(query.checkpoint), "--apply", "--force", *to]) == 2
        error = capsys.readouterr().err
        assert "state/0/1: " in error
        way_out = r'from a copy, or restart the query from (.*?): "Restart'
        assert re.findall(way_out, error) == [batch]
        assert "Nothing was changed" in error
        assert contents(query.checkpoint) == before


def test_the_command_starts_and_stops_a_session_of_its_own(
    first_segments: FirstSegments, tmp_path: Path
) -> None:
    query = first_segments.copy(AGGREGATION, ROCKSDB, tmp_path, THROUGH_MANAGER)
    command = [sys.executable, "-m", "cowstate", "adopt", str(query.checkpoint)]
    command += ["--apply", "--force", "--json", "--master", "local[1]"]
    command += ["--conf", f"spark.local.dir={tmp_path / 'scratch'}"]
    with zipfile.ZipFile(tmp_path / "theirs.jar", "w") as archive:
        archive.writestr("content", "")
    command += ["--conf", f"spark.jars={tmp_path / 'theirs.jar'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["applied"]
    assert len(report["created"]) == 2
    assert "converted 2 of 2 stores" in done.stderr
    assert provider_of_last_batch(query.checkpoint) == COWSTATE
    assert noise_in(done.stderr) == []


def noise_in(log: str) -> list[str]:
    """The lines that a command prints, without its own lines and a JVM warning that nothing turns
    off."""
    own = ("converted ", "cowstate: ", "WARNING: Using incubator modules")
    return [line for line in log.splitlines() if not line.startswith(own)]


def test_a_cut_file_of_rocksdb_is_told_without_a_stack_trace(
    first_segments: FirstSegments, tmp_path: Path
) -> None:
    query = first_segments.copy(AGGREGATION, ROCKSDB, tmp_path, THROUGH_MANAGER)
    victim = max((query.checkpoint / "state" / "0" / "1").glob("*.zip"))
    whole = victim.read_bytes()
    delete(victim)
    victim.write_bytes(whole[: len(whole) // 3])
    command = [sys.executable, "-m", "cowstate", "adopt", str(query.checkpoint)]
    command += ["--apply", "--force", "--master", "local[1]"]
    command += ["--conf", f"spark.local.dir={tmp_path / 'scratch'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "state/0/1: its files cannot be read: " in done.stderr
    assert "Restart from an earlier batch" in done.stderr
    assert noise_in(done.stderr) == []
