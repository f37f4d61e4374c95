"""Several drivers, copied checkpoints and restored stores never lose a committed epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpoint_store.epochs.completed_checkpoint import Barrier
from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.run_errors import (
    ContradictingRunsError,
    OvertakenRunError,
)
from spark_state.errors import ConfigurationError, FencedError
from spark_state.spark.queries.operator_starts import WayBack, reached_in_store, take_back_in_store
from spark_state.subtasks.epoch_request import NEVER_RUN, OperatorStart
from spark_state.subtasks.store_session import EPOCHS_BETWEEN_LOOKS
from tests.support.operators.subtasks import Host, OpenHost, take_back

PLACE = "file:/checkpoint"
ROWS_A = [("a", 1)]


def after_epochs(open_host: OpenHost, count: int) -> Host:
    """Return the host of the query's first run after `count` epochs with one row each."""
    host = open_host(run_id="run-1", start=OperatorStart(PLACE))
    for epoch in range(count):
        host.epoch(epoch, ROWS_A)
    return host


@dataclass
class Drivers:
    """Two drivers of one query: `second` was started beside `first`."""

    first: Host
    second: Host

    @classmethod
    def at_epoch(cls, open_host: OpenHost, epoch: int) -> Drivers:
        first = after_epochs(open_host, epoch)
        start = OperatorStart(PLACE, newest_epoch=epoch - 1)
        return cls(first, open_host(run_id="run-2", start=start))


def test_a_second_driver_that_falls_behind_costs_no_committed_epoch(open_host: OpenHost) -> None:
    drivers = Drivers.at_epoch(open_host, 6)
    drivers.first.epoch(6, ROWS_A)
    assert drivers.second.epoch(6, [("a", 3)], attempt=9) == {"a": (7, 9)}
    # Spark's commit log refuses the second driver, so the first driver goes on, and fails at once.
    with pytest.raises(FencedError, match="run 2, a newer run, has begun with epoch 6"):
        drivers.first.epoch(7, ROWS_A)
    restarted = open_host(run_id="run-3", start=OperatorStart(PLACE, newest_epoch=6))
    assert restarted.epoch(7, ROWS_A) == {"a": (8, 8)}


def test_a_driver_notices_a_run_that_has_begun_far_behind_it(open_host: OpenHost) -> None:
    drivers = Drivers.at_epoch(open_host, 6)
    publish = drivers.second.checkpoints.publish_barrier
    barriers: list[Barrier] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drivers.second.checkpoints, "publish_barrier", barriers.append)
        drivers.second.epoch(6, [("a", 3)], attempt=9)
    for epoch in range(6, 50):
        drivers.first.epoch(epoch, ROWS_A)
    publish(barriers[0])
    drivers.second.checkpoints.complete(6, barriers[0].run, 1)
    epochs = iter(range(50, 51 + EPOCHS_BETWEEN_LOOKS))
    with pytest.raises(FencedError, match="run 2, a newer run, has begun with epoch 6"):
        [drivers.first.epoch(number, ROWS_A) for number in epochs]
    epoch = next(epochs) - 1
    restarted = open_host(run_id="run-3", start=OperatorStart(PLACE, newest_epoch=epoch - 1))
    assert restarted.epoch(epoch, ROWS_A) == {"a": (epoch + 1, epoch + 1)}


def test_a_driver_that_is_too_late_is_refused(open_host: OpenHost) -> None:
    drivers = Drivers.at_epoch(open_host, 6)
    for epoch in (6, 7):
        drivers.first.epoch(epoch, ROWS_A)
    with pytest.raises(OvertakenRunError, match="run 1 has gone on to epoch 7"):
        drivers.second.epoch(6, ROWS_A)
    assert drivers.first.epoch(8, ROWS_A) == {"a": (9, 9)}


def test_a_query_that_was_taken_back_says_so_and_goes_on(
    open_host: OpenHost, tmp_path: Path
) -> None:
    after_epochs(open_host, 10)
    unseen = open_host(run_id="run-2", start=OperatorStart(PLACE, newest_epoch=3))
    with pytest.raises(OvertakenRunError, match="taken back"):
        unseen.epoch(4, ROWS_A)
    take_back(tmp_path, PLACE, 3)
    back = OperatorStart(PLACE, newest_epoch=3)
    assert open_host(run_id="run-3", start=back).epoch(4, ROWS_A) == {"a": (5, 5)}
    start = OperatorStart(PLACE, newest_epoch=4)
    assert open_host(run_id="run-4", start=start).epoch(5, ROWS_A) == {"a": (6, 6)}


def test_an_operator_that_runs_long_after_its_query_went_back_leaves_later_epochs(
    open_host: OpenHost, tmp_path: Path
) -> None:
    after_epochs(open_host, 6)
    take_back(tmp_path, PLACE, 2)
    # Batches up to 8 have rows of another source only; meanwhile the query starts again.
    start = OperatorStart(PLACE, newest_epoch=2)
    assert open_host(run_id="run-3", start=start).epoch(9, ROWS_A) == {"a": (4, 4)}


def test_two_drivers_of_a_query_that_was_taken_back_are_compared(
    open_host: OpenHost, tmp_path: Path
) -> None:
    after_epochs(open_host, 10)
    start = OperatorStart(PLACE, newest_epoch=3)
    seen = reached_in_store(str(tmp_path / "query" / "totals"), 1.0, {}, PLACE)
    take_back(tmp_path, PLACE, 3)
    with pytest.raises(ConfigurationError, match="another driver runs the query, too"):
        take_back(tmp_path, PLACE, 3, seen)  # `seen` is from before the first take-back
    open_host(run_id="run-2", start=start).epoch(4, ROWS_A)
    open_host(run_id="run-3", start=start).epoch(4, [("a", 1000)], attempt=99)
    restarted = open_host(run_id="run-4", start=OperatorStart(PLACE, newest_epoch=4))
    with pytest.raises(ContradictingRunsError, match="epoch 4"):
        restarted.epoch(5, ROWS_A)


def test_a_query_that_goes_back_before_its_first_batch_begins_with_nothing(
    open_host: OpenHost, tmp_path: Path
) -> None:
    after_epochs(open_host, 3)
    take_back(tmp_path, PLACE, -1)
    start = OperatorStart(PLACE, newest_epoch=NEVER_RUN)
    assert open_host(run_id="run-2", start=start).epoch(0, ROWS_A) == {"a": (1, 1)}


def test_a_query_goes_back_to_its_first_batch_however_much_is_deleted(
    open_host: OpenHost, tmp_path: Path
) -> None:
    after_epochs(open_host, 8)
    checkpoints = CompletedCheckpointStore(LocalObjectStore(tmp_path / "query" / "totals"))
    assert checkpoints.retain(2)
    take_back(tmp_path, PLACE, -1)
    start = OperatorStart(PLACE, newest_epoch=NEVER_RUN, committed=1)  # batches 0, 1: other rows
    assert open_host(run_id="run-2", start=start).epoch(2, ROWS_A) == {"a": (1, 1)}


def test_a_task_that_takes_back_may_be_tried_again(open_host: OpenHost, tmp_path: Path) -> None:
    after_epochs(open_host, 4)
    url = str(tmp_path / "query" / "totals")
    seen = reached_in_store(url, 1.0, {}, PLACE)
    way_back = WayBack(PLACE, 1, is_under_way=False, seen=seen, must_have=1)
    for _ in range(2):
        take_back_in_store(url, 1.0, {}, way_back)
    start = OperatorStart(PLACE, newest_epoch=1)
    assert open_host(run_id="run-2", start=start).epoch(2, ROWS_A) == {"a": (3, 3)}


def test_an_epoch_that_runs_wrote_alike_is_the_same_epoch(open_host: OpenHost) -> None:
    open_host(run_id="run-1").epoch(0, ROWS_A)
    for run_id in ("run-2", "run-3", "run-4"):
        assert open_host(run_id=run_id).epoch(1, ROWS_A) == {"a": (2, 2)}
    assert open_host(run_id="run-5").epoch(2, ROWS_A) == {"a": (3, 3)}


def test_all_runs_that_wrote_the_last_epoch_are_compared(open_host: OpenHost) -> None:
    drivers = Drivers.at_epoch(open_host, 6)
    drivers.first.epoch(6, ROWS_A)
    late = open_host(run_id="run-3", start=OperatorStart(PLACE, newest_epoch=5))
    for host in (drivers.second, late):
        host.epoch(6, [("a", 1000)], attempt=9)
    restarted = open_host(run_id="run-4", start=OperatorStart(PLACE, newest_epoch=6))
    with pytest.raises(ContradictingRunsError, match=r"runs 1 and 3 .* epoch 6"):
        restarted.epoch(7, ROWS_A)


def test_a_part_of_an_epoch_does_not_hide_that_another_run_has_it_whole(
    open_host: OpenHost,
) -> None:
    rows = [(key, 1) for key in "abcdefgh"]

    def run(
        run_id: str, epoch: int, subtasks: Sequence[int] = (0, 1)
    ) -> dict[str, tuple[int, int]]:
        start = OperatorStart(PLACE, newest_epoch=epoch - 1)
        attempt = int(run_id[-1])
        emitted = {}
        for subtask in subtasks:
            host = open_host(parallelism=2, subtask=subtask, run_id=run_id, start=start)
            emitted |= host.epoch(epoch, rows, attempt=attempt)
        return emitted

    run("run-1", 0)
    run("run-1", 1)  # Spark commits epoch 1, although a second driver publishes half of epoch 1
    run("run-2", 1, (0,))
    assert run("run-3", 2) == dict.fromkeys("abcdefgh", (3, 3))


def test_an_operator_whose_rows_come_late_begins_with_nothing(open_host: OpenHost) -> None:
    start = OperatorStart(PLACE, newest_epoch=NEVER_RUN, committed=2)
    assert open_host(run_id="run-1", start=start).epoch(3, ROWS_A) == {"a": (1, 1)}


def test_a_store_that_is_lost_in_the_first_run_of_a_query_is_no_empty_state(
    open_host: OpenHost, tmp_path: Path
) -> None:
    start = OperatorStart(PLACE, newest_epoch=NEVER_RUN)
    host = open_host(run_id="run-1", start=start)
    for epoch in range(5):
        host.epoch(epoch, ROWS_A)
    (tmp_path / "query").rename(tmp_path / "lost")
    late = open_host(run_id="run-1", start=start)
    with pytest.raises(ConfigurationError, match=r"holds no state of the epochs before: is spark"):
        late.epoch(5, ROWS_A)
    (tmp_path / "query").rename(tmp_path / "begun")
    (tmp_path / "lost").rename(tmp_path / "query")
    assert open_host(run_id="run-1", start=start).epoch(5, ROWS_A) == {"a": (6, 6)}


def test_a_run_that_goes_back_looks_for_newer_runs_as_often(
    open_host: OpenHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = after_epochs(open_host, 40)
    take_back(tmp_path, PLACE, 3)
    host.run_id, host.start = "run-2", OperatorStart(PLACE, newest_epoch=3)
    looks: list[int] = []
    monkeypatch.setattr(
        host.checkpoints.starts, "check_newest", lambda run: looks.append(run.number)
    )
    for epoch in range(4, 4 + 2 * EPOCHS_BETWEEN_LOOKS + 2):
        host.epoch(epoch, ROWS_A, attempt=100)
    assert len(looks) == 2


def test_noticing_a_newer_run_costs_a_request_in_sixteen_epochs(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host(run_id="run-1", start=OperatorStart(PLACE))
    host.epoch(0, ROWS_A)
    starts = host.checkpoints.starts
    looks: list[int] = []
    monkeypatch.setattr(starts, "check_newest", lambda run: looks.append(run.number))
    for epoch in range(1, 161):
        host.epoch(epoch, ROWS_A)
    assert len(looks) == 160 // EPOCHS_BETWEEN_LOOKS


def test_a_run_that_has_begun_and_written_nothing_is_no_stray(open_host: OpenHost) -> None:
    older = open_host(run_id="run-1")
    for epoch in range(2):
        older.epoch(epoch, ROWS_A)
    newer = open_host(run_id="run-2")
    run = newer.checkpoints.runs.register("run-2")
    newer.checkpoints.starts.write(run, 2, EpochDirectory(1, 1), None)
    assert newer.epoch(2, ROWS_A) == {"a": (3, 3)}
