"""`cowstate adopt` of an operator is safe on stores where a rename takes several steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.stopped_query import checkpoint_change
from tests.support.provider.adopted_operators import BATCHES, UNSAFE_ROWS, AdoptedJob, EveryState
from tests.support.provider.adoption_jobs import contents
from tests.support.provider.stopped_changes import StoppedError, stop_after

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AdoptedJob:
    """A stopped job that ran two batches on Spark, with rows for a third batch."""
    job = AdoptedJob(spark, tmp_path_factory.mktemp("stopped"), EveryState(), "None")
    for rows in BATCHES[:2]:
        job.feed(rows)
        job.on_spark(UNSAFE_ROWS)
    job.feed(BATCHES[2])
    return job


def move_by_copies(files: CheckpointFiles, source_url: str, path: str) -> None:
    """Rename as object stores do: copy, then delete."""
    source = files.relative(source_url)
    is_folder = Path(source_url.removeprefix("file:")).is_dir()
    moved = [file.path for file in files.below(source)] if is_folder else [source]
    for each in moved:
        files.copy(each, path + each.removeprefix(source))
    for each in (*moved, source):
        files.delete(each)


class TestStoresWithoutAtomicRename:
    def test_a_folder_comes_back_whole_wherever_its_move_and_its_way_back_were_stopped(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        state = tmp_path / "state"
        for name in ("0/0/1.zip", "0/0/2.zip", "0/1/1.zip", "0/_metadata/metadata"):
            (state / name).parent.mkdir(parents=True, exist_ok=True)
            (state / name).write_text(f"content of {name}")
        before, files = contents(tmp_path, [".crc"]), CheckpointFiles(spark, str(tmp_path))
        changing = {CheckpointFiles: ["copy", "delete"]}
        for writes in range(100):
            for writes_back in range(100):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(CheckpointFiles, "move", move_by_copies)
                    is_stopped = self.stops(
                        writes, changing, lambda: files.move(files.url_of("state"), "kept/state")
                    )
                    is_stopped_back = self.stops(
                        writes_back, changing, lambda: files.move_back("kept/state", "state")
                    )
                    files.move_back("kept/state", "state")
                files.delete("kept")
                stops = f"stopped after {writes} and {writes_back}"
                assert contents(tmp_path, [".crc"]) == before, stops
                if not is_stopped_back:
                    break
            if not is_stopped:
                break
        assert writes >= 8

    def stops(
        self, writes: int, changing: dict[type, list[str]], action: Callable[[], None]
    ) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, writes, changing)
            try:
                action()
            except StoppedError:
                return True
        return False

    @pytest.mark.parametrize("writes", [1, 20])
    def test_an_adoption_that_is_killed_while_it_moves_the_state_is_undone(
        self,
        stopped: AdoptedJob,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        writes: int,
    ) -> None:
        expected, job = stopped.copy(tmp_path / "spark"), stopped.copy(tmp_path / "job")
        before = contents(job.checkpoint, [".crc"])

        def stopped_move(files: CheckpointFiles, source_url: str, path: str) -> None:
            with monkeypatch.context() as patch:
                stop_after(patch, writes, {CheckpointFiles: ["copy", "delete"]})
                move_by_copies(files, source_url, path)

        with monkeypatch.context() as patch:
            # A killed process undoes nothing.
            patch.setattr(checkpoint_change, "_undo_after", lambda *_, **__: None)
            patch.setattr(CheckpointFiles, "move", stopped_move)
            with pytest.raises(StoppedError):
                job.adopt("--apply", "--force")
        assert contents(job.checkpoint, [".crc"]) != before
        with pytest.raises(ConfigurationError):
            job.on_cowstate()
        assert job.adopt("--apply", "--force") == 2
        assert "--revert" in capsys.readouterr().err
        assert job.adopt("--revert", "--force") == 0
        assert contents(job.checkpoint, [".crc"]) == before
        expected.on_spark(UNSAFE_ROWS)
        job.on_spark(UNSAFE_ROWS)
        assert job.shown() == expected.shown()
