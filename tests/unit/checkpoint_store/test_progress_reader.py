"""The barriers of operators give the operators' progress, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_store import (
    NotAnOperatorError,
    NotAStoreError,
    VersionNotRetainedError,
    read_progress,
)
from checkpoint_store.epochs.completed_checkpoint import (
    Barrier,
    CompletedCheckpoint,
    Run,
    SubtaskTime,
)
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.operator_history import OperatorHistory
from checkpoint_store.operators.operator_progress import (
    OperatorProgress,
    operator_progress,
)
from checkpoint_store.progress_reader import progress_at
from tests.support.operators.counts_operator import METADATA, CountsOperator
from tests.support.operators.epoch_reports import NOTHING_DONE
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.tables.table_rows_of import ScriptedTable, put

BARRIER = Barrier("b0", 4, 0, 2, Run(1, "run-a"), 1, "plan", (), None, None, (), (), NOTHING_DONE)
OTHER = replace(BARRIER, barrier_id="b1", subtask=1)
FIRST = EpochReport(
    rows_in=10,
    rows_out=9,
    changed=8,
    removed=7,
    entries=60,
    written_bytes=500,
    restore_ms=4,
    process_ms=3,
    write_ms=2,
    states_deleted=2,
    failed_snapshots=4,
    late_rows=1,
    timers=5,
    memory_bytes=1_000,
    last_publish_ms=6,
)
SECOND = EpochReport(
    rows_in=1,
    rows_out=2,
    changed=3,
    removed=4,
    entries=5,
    written_bytes=6,
    restore_ms=7,
    process_ms=8,
    write_ms=9,
    states_deleted=3,
    failed_snapshots=1,
    late_rows=10,
    timers=11,
    memory_bytes=12,
    last_publish_ms=13,
)


def operator_in(folder: Path, run_id: str = "run-a") -> CountsOperator:
    return CountsOperator(open_object_store(str(folder)), run_id)


def progress_of(*barriers: Barrier, subtasks: bool = True) -> OperatorProgress:
    checkpoint = CompletedCheckpoint(4, Run(1, "run-a"), len(barriers), barriers)
    return operator_progress("counts", "dict://store", checkpoint, 1_234, subtasks=subtasks)


class TestNumbers:
    def test_those_of_an_operator_are_sums_of_its_subtasks(self) -> None:
        times = SubtaskTime(50, (60,), 900, None), SubtaskTime(70, (60,), 800, None)
        both = (
            replace(BARRIER, report=FIRST, time=times[0]),
            replace(OTHER, report=SECOND, time=times[1]),
        )
        progress = progress_of(*both)
        assert (progress.name, progress.url, progress.epoch) == ("counts", "dict://store", 4)
        assert (progress.committed_ms, progress.run_id, progress.parallelism) == (1_234, "run-a", 2)
        assert (progress.rows_in, progress.rows_out) == (11, 11)
        assert (progress.rows_total, progress.rows_updated, progress.rows_removed) == (65, 11, 11)
        assert (progress.timers, progress.memory_bytes, progress.late_rows) == (16, 1_012, 11)
        assert (progress.restore_ms, progress.process_ms, progress.write_ms) == (11, 11, 11)
        assert (progress.last_publish_ms, progress.written_bytes) == (19, 506)
        assert (progress.states_deleted, progress.failed_snapshots) == (5, 4)
        assert (progress.next_timer_ms, progress.watermark_ms) == (800, 70)
        first, second = progress.subtasks
        assert (first.subtask, first.rows_total, first.next_timer_ms) == (0, 60, 900)
        assert (second.subtask, second.rows_total, second.next_timer_ms) == (1, 5, 800)

    def test_a_number_that_one_subtask_does_not_say_is_none(self) -> None:
        adopted = replace(NOTHING_DONE, rows_in=1)
        both = replace(BARRIER, report=FIRST), replace(OTHER, report=adopted)
        progress = progress_of(*both)
        assert (progress.rows_in, progress.timers, progress.memory_bytes) == (11, None, None)
        assert (progress.late_rows, progress.last_publish_ms) == (None, None)
        assert progress.states_deleted == 2
        assert progress.subtasks[0].timers == 5

    def test_an_operator_without_time_has_no_watermark_and_no_timer(self) -> None:
        progress = progress_of(BARRIER, subtasks=False)
        assert (progress.watermark_ms, progress.next_timer_ms) == (None, None)
        assert progress.subtasks == ()
        in_processing_time = replace(BARRIER, time=SubtaskTime(0, (), 77, None))
        progress = progress_of(in_processing_time, subtasks=False)
        assert (progress.watermark_ms, progress.next_timer_ms) == (None, 77)


class TestStores:
    def test_the_newest_epoch_and_the_epochs_before_it(self, tmp_path: Path) -> None:
        operator = operator_in(tmp_path / "counts")
        for epoch in (0, 1, 3, 4):
            operator.run_epoch(epoch, {epoch: 1})
        url = str(tmp_path / "counts")
        assert [progress.epoch for progress in read_progress(url)] == [4]
        assert [progress.epoch for progress in read_progress(url, epochs=3)] == [1, 3, 4]
        assert [progress.epoch for progress in read_progress(url, epochs=9)] == [0, 1, 3, 4]
        (newest,) = read_progress(url, subtasks=True)
        assert [subtask.subtask for subtask in newest.subtasks] == [0, 1]
        assert (newest.name, newest.url) == (METADATA.operator, f"file://{url}")
        assert newest.committed_ms > 0

    def test_the_directory_of_a_query_has_all_its_operators(self, tmp_path: Path) -> None:
        for number in (10, 1, 2, 0):
            operator_in(tmp_path / f"operator-{number}").run_epoch(0, {0: 1})
        urls = [progress.url for progress in read_progress(str(tmp_path))]
        assert urls == [f"file://{tmp_path}/operator-{number}" for number in (0, 1, 2, 10)]


class TestCost:
    def test_each_new_epoch_costs_two_listings_and_one_read(self) -> None:
        objects = DictObjectStore()
        operator = CountsOperator(objects)
        history = OperatorHistory(objects, METADATA, None)
        operator.run_epoch(0, {0: 0})
        history.versions()
        for epoch in range(1, 5):
            operator.run_epoch(epoch, {0: epoch})
            objects.reads.clear()
            objects.listings.clear()
            assert progress_at(history, history.versions()[-1], subtasks=True).epoch == epoch
            assert (len(objects.listings), len(objects.reads)) == (2, 1)


class TestErrors:
    def test_no_store_is_an_error_that_names_the_stores_below(self, tmp_path: Path) -> None:
        operator_in(tmp_path / "query/counts").run_epoch(0, {0: 1})
        advice = r"Name <store>/<query id>/<operator>, or <store>/<query id> for all"
        with pytest.raises(NotAStoreError, match=f"there are query/counts. {advice}"):
            read_progress(str(tmp_path))
        with pytest.raises(NotAStoreError, match=advice) as raised:
            read_progress(str(tmp_path / "nothing"))
        assert "table" not in str(raised.value)

    def test_a_table_has_no_progress_of_an_operator(self, tmp_path: Path) -> None:
        ScriptedTable(LocalObjectStore(tmp_path)).commit(0, put(1, "a", 1))
        with pytest.raises(NotAnOperatorError, match="<store>/<query id>"):
            read_progress(str(tmp_path))

    def test_a_checkpoint_of_spark_says_where_operators_are(self, tmp_path: Path) -> None:
        (tmp_path / "commits").mkdir()
        (tmp_path / "commits/0").write_text("v1\n{}")
        with pytest.raises(NotAnOperatorError, match="<query id>/<operator>"):
            read_progress(str(tmp_path))

    def test_a_store_without_an_epoch_says_so(self, tmp_path: Path) -> None:
        operator_in(tmp_path)
        with pytest.raises(VersionNotRetainedError, match="holds no version yet"):
            read_progress(str(tmp_path))

    def test_less_than_one_epoch_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="epochs is 0"):
            read_progress(str(tmp_path), epochs=0)
