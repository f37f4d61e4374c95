"""Arriving barriers are sorted into aligned epochs and channels that are ahead."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkpoint_store.epochs.operator_layout import BarrierName, EpochDirectory
from checkpoint_store.epochs.published_objects import PublishedObjects
from checkpoint_store.objects.object_info import ObjectInfo
from datasources.streams.operator_channels import OperatorChannels, barriers_after
from spark_state.barriers.input_gate import CheckpointingMode
from spark_state.errors import CorruptStreamError
from tests.support.operators.counts_operator import CountsOperator
from tests.support.stores.fake_object_store import DictObjectStore

MODES: list[CheckpointingMode] = ["exactly_once", "at_least_once"]


def barrier(
    epoch: int, subtask: int, run: int = 1, parallelism: int = 2, attempt: int = 1
) -> BarrierName:
    unique = f"{attempt:012x}"
    return BarrierName(EpochDirectory(epoch, run), subtask, parallelism, attempt, unique)


def channels_of(
    mode: CheckpointingMode = "at_least_once", aligned: EpochDirectory | None = None
) -> OperatorChannels:
    return OperatorChannels(mode, aligned)


@pytest.fixture(params=MODES)
def channels(request: pytest.FixtureRequest) -> OperatorChannels:
    return channels_of(request.param)


def test_an_epoch_is_aligned_once_all_published_it(channels: OperatorChannels) -> None:
    channels.arrive([barrier(0, 0)])
    assert channels.aligned is None
    channels.arrive([barrier(0, 0), barrier(0, 1)])
    assert channels.aligned == EpochDirectory(0, 1)
    assert channels.ahead() == {}


def test_several_epochs_may_come_at_once_in_any_order(channels: OperatorChannels) -> None:
    channels.arrive(barrier(epoch, subtask) for epoch in (2, 1, 0) for subtask in (1, 0))
    assert channels.aligned == EpochDirectory(2, 1)


def test_channels_begin_after_an_epoch_that_is_whole() -> None:
    channels = channels_of(aligned=EpochDirectory(4, 1))
    channels.arrive([barrier(4, 0), barrier(4, 1), barrier(5, 1)])
    assert channels.aligned == EpochDirectory(4, 1)
    assert channels.ahead() == {1: barrier(5, 1)}


def test_an_epoch_that_a_subtask_skipped_is_skipped(channels: OperatorChannels) -> None:
    channels.arrive([barrier(0, 0), barrier(1, 0)])
    channels.arrive([barrier(1, 1)])
    assert channels.aligned == EpochDirectory(1, 1)
    assert channels.ahead() == {}


def test_an_epoch_after_a_later_is_a_corrupt_stream(channels: OperatorChannels) -> None:
    channels.arrive([barrier(0, 0), barrier(1, 0)])
    channels.arrive([barrier(1, 1)])
    channels.arrive([barrier(3, 0)])
    with pytest.raises(CorruptStreamError, match=r"epoch 2 came after that of 3"):
        channels.arrive([barrier(2, 0)])


def test_at_least_once_lets_channels_go_ahead() -> None:
    channels = channels_of()
    channels.arrive([barrier(0, 1), barrier(1, 1)])
    assert channels.ahead() == {1: barrier(1, 1)}
    channels.arrive([barrier(0, 0)])
    assert channels.aligned == EpochDirectory(0, 1)
    assert channels.ahead() == {1: barrier(1, 1)}
    channels.arrive([barrier(1, 0)])
    assert channels.ahead() == {}


def test_exactly_once_holds_later_epochs_back() -> None:
    channels = channels_of("exactly_once")
    channels.arrive([barrier(0, 1), barrier(1, 1)])
    assert channels.ahead() == {1: barrier(0, 1)}
    channels.arrive([barrier(0, 0)])
    assert channels.aligned == EpochDirectory(0, 1)
    assert channels.ahead() == {1: barrier(1, 1)}


def test_a_later_attempt_replaces_the_one_before(channels: OperatorChannels) -> None:
    channels.arrive([barrier(0, 1)])
    again = barrier(0, 1, attempt=2)
    channels.arrive([barrier(0, 1), again])
    assert channels.aligned is None
    channels.arrive([barrier(0, 0), barrier(0, 1), again])
    assert channels.aligned == EpochDirectory(0, 1)
    assert channels.ahead() == {}


def test_the_later_attempt_is_the_one_that_is_ahead() -> None:
    channels = channels_of()
    again = barrier(0, 1, attempt=2)
    channels.arrive([again, barrier(0, 1)])
    assert channels.ahead() == {1: again}
    channels.arrive([barrier(0, 1, attempt=3)])
    assert channels.ahead() == {1: barrier(0, 1, attempt=3)}


def test_a_new_run_has_channels_of_its_own(channels: OperatorChannels) -> None:
    channels.arrive([barrier(0, 0), barrier(0, 1), barrier(1, 0)])
    channels.arrive([barrier(1, 2, run=2, parallelism=3)])
    assert channels.aligned == EpochDirectory(0, 1)
    assert channels.ahead() == {2: barrier(1, 2, run=2, parallelism=3)}
    channels.arrive([barrier(1, subtask, 2, 3) for subtask in range(3)])
    assert channels.aligned == EpochDirectory(1, 2)


def test_epochs_of_two_runs_at_once_count_by_run(channels: OperatorChannels) -> None:
    arrived = [barrier(0, 0, 2, 1), barrier(5, 0), barrier(5, 1)]
    channels.arrive(arrived)
    assert channels.aligned == EpochDirectory(0, 2)


def test_a_zombie_of_an_older_run_is_left_out(channels: OperatorChannels) -> None:
    channels.arrive([barrier(1, 0, run=2)])
    channels.arrive([barrier(1, 1, run=1), barrier(2, 0, run=1), barrier(2, 1, run=1)])
    assert channels.aligned is None
    channels.arrive([barrier(1, 1, run=2)])
    assert channels.aligned == EpochDirectory(1, 2)
    assert channels.ahead() == {}


def test_only_barriers_after_the_aligned_epoch_are_listed() -> None:
    objects = DictObjectStore()
    operator = CountsOperator(objects)
    for epoch in range(3):
        operator.run_epoch(epoch, {0: epoch})
    operator.run_subtask(3, 1, {7: 3}, operator.checkpoints.latest_before(3))
    published = PublishedObjects(objects)
    of_run = [EpochDirectory(epoch, operator.run.number) for epoch in (3, 2, 1, 0)]
    names = barriers_after(published, of_run, of_run[1])
    assert [(name.directory.epoch, name.subtask) for name in names] == [(3, 1)]
    assert len(barriers_after(published, of_run, None)) == 7


def test_who_publishes_during_a_look_is_not_taken_for_one_that_skips_epochs() -> None:
    """Subtask 0 publishes epochs 1 and 2 while the directories are being listed."""
    names = [barrier(epoch, 0) for epoch in (0, 1, 2)]
    for listed_before in range(4):
        store = PublishingStore(names, listed_before)
        channels = channels_of(aligned=EpochDirectory(0, 1))
        timeline = [name.directory for name in reversed(names)]
        for _ in range(3):
            published = PublishedObjects(store)
            channels.arrive(barriers_after(published, timeline, channels.aligned))
        assert channels.ahead()[0].directory == EpochDirectory(2, 1)


class PublishingStore(DictObjectStore):
    """A store that shows the directories of all epochs at once, but the barriers after the first
    barrier only after `listed_before` listings."""

    def __init__(self, names: Sequence[BarrierName], listed_before: int) -> None:
        super().__init__()
        self.names = [*names]
        self.listed_before = listed_before

    def list(self, directory: str, prefix: str = "") -> Sequence[ObjectInfo]:
        there = self.names[:1] if self.listed_before else self.names
        self.listed_before = max(0, self.listed_before - 1)
        names = [name for name in there if str(name).startswith(f"{directory}/{prefix}")]
        return [ObjectInfo(str(name), 1, 0.0) for name in names]
