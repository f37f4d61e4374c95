"""The live timeline has the right epochs after any script of epochs written by several runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import BegunName, EpochDirectory, Way
from checkpoint_store.runs.run_lineage import (
    RunLineage,
    by_epoch,
    lineage_of,
    timeline_of,
)

Epochs = dict[int, list[int]]
"""The epochs that each run has written."""


def begun(run: int, first: int, base: tuple[int, int] | None, way: Way = "forward") -> BegunName:
    """Make the name of a run's start. `base`: number of a run, and epoch."""
    start = None if base is None else EpochDirectory(base[1], base[0])
    return BegunName(Run(run, f"run-{run}"), first, start, way)


def lineage(starts: list[BegunName], epochs: Epochs) -> RunLineage:
    return lineage_of(
        starts, [EpochDirectory(epoch, run) for run, of_run in epochs.items() for epoch in of_run]
    )


def live(timeline: RunLineage) -> list[tuple[int, int]]:
    """Return the timeline as pairs (run, epoch), oldest first."""
    return [(each.run_number, each.epoch) for each in by_epoch(timeline.epochs)][::-1]


FIRST = begun(1, 0, None)


def test_a_store_without_runs_has_no_timeline() -> None:
    assert lineage([], {}) == RunLineage((), 0, -1, -1)


def test_a_restart_goes_on_where_the_run_before_ended() -> None:
    timeline = lineage([FIRST, begun(2, 3, (1, 2))], {1: [0, 1, 2], 2: [3, 4]})
    assert live(timeline) == [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)]
    assert (timeline.newest_run, timeline.reached, timeline.rivals) == (2, 4, ())


ATTACHED = begun(3, 2, (1, 1), "back")
CUT_AT_BASE = begun(3, 2, (1, 1), "cut")


class TestDriversThatAreAliveWhenAStoreIsAttached:
    """Run 3, registered by `cowstate attach`, goes back to epoch 1 of run 1."""

    def test_the_next_epoch_of_an_older_run_counts(self) -> None:
        timeline = lineage([FIRST, CUT_AT_BASE, ATTACHED], {1: [0, 1, 2, 3]})
        assert live(timeline) == [(1, 0), (1, 1), (1, 2), (1, 3)]
        assert (timeline.newest_run, timeline.reached) == (1, 3)

    def test_it_is_a_rival_of_the_same_epoch_of_a_later_run(self) -> None:
        starts = [FIRST, CUT_AT_BASE, ATTACHED, begun(4, 2, (1, 1))]
        assert lineage(starts, {1: [0, 1, 2], 4: [2]}).rivals == (
            EpochDirectory(2, 4),
            EpochDirectory(2, 1),
        )
        assert live(lineage(starts, {1: [0, 1, 2], 4: [2, 3]}))[2:] == [(4, 2), (4, 3)]
        assert live(lineage(starts, {1: [0, 1, 2, 3], 4: [2]}))[2:] == [(1, 2), (1, 3)]
        both = lineage(starts, {1: [0, 1, 2, 3], 4: [2, 3]}).contradiction
        assert (both.older_run, both.newer.run.number) == (1, 4)

    def test_epochs_that_were_cut_off_do_not_count_whatever_the_run_adds(self) -> None:
        cut = begun(3, 2, (1, 4), "cut")
        timeline = lineage([FIRST, cut, ATTACHED], {1: [0, 1, 2, 3, 4, 5]})
        assert live(timeline) == [(1, 0), (1, 1)]

    def test_runs_of_other_checkpoints_and_other_bases_do_not_count(self) -> None:
        attached = replace(ATTACHED, checkpoint="0" * 12)
        copied = replace(begun(2, 2, (1, 1)), checkpoint="1" * 12)
        timeline = lineage([FIRST, copied, CUT_AT_BASE, attached], {1: [0, 1], 2: [2, 3]})
        assert live(timeline) == [(1, 0), (1, 1)]
        rival = begun(2, 1, (1, 0))
        timeline = lineage([FIRST, rival, CUT_AT_BASE, ATTACHED], {1: [0, 1], 2: [1, 2]})
        assert live(timeline) == [(1, 0), (1, 1)]

    def test_two_older_runs_that_both_go_on_contradict_each_other(self) -> None:
        second = begun(2, 2, (1, 1))
        starts = [FIRST, second, CUT_AT_BASE, ATTACHED]
        both = lineage(starts, {1: [0, 1, 2, 3], 2: [2, 3]}).contradiction
        assert (both.older_run, both.newer.run.number, both.newer.first_epoch) == (1, 2, 2)
        assert live(lineage(starts, {1: [0, 1, 2, 3], 2: [2]}))[2:] == [(1, 2), (1, 3)]


def test_a_restart_that_runs_the_last_epoch_again_replaces_it_once_it_goes_on() -> None:
    starts = [FIRST, begun(2, 2, (1, 1))]
    replayed = lineage(starts, {1: [0, 1, 2], 2: [2]})
    assert live(replayed) == [(1, 0), (1, 1), (2, 2)]
    assert replayed.rivals == (EpochDirectory(2, 2), EpochDirectory(2, 1))
    gone_on = lineage(starts, {1: [0, 1, 2], 2: [2, 3]})
    assert live(gone_on) == [(1, 0), (1, 1), (2, 2), (2, 3)]
    assert gone_on.rivals == ()


def test_a_run_that_was_asked_for_a_later_epoch_has_gone_past_the_one_before() -> None:
    """Run 1 noted that Spark asked for epoch 3, and ended before writing anything."""
    starts = [FIRST, begun(1, 3, None, "reached"), begun(2, 2, (1, 1))]
    timeline = lineage(starts, {1: [0, 1, 2], 2: [2]})
    assert live(timeline) == [(1, 0), (1, 1), (1, 2)]
    assert (timeline.newest_run, timeline.reached) == (1, 3)


def test_a_first_epoch_that_is_known_to_be_committed_has_no_rival() -> None:
    starts = [FIRST, begun(2, 2, (1, 1)), begun(2, 3, (1, 1), "reached")]
    assert lineage(starts, {1: [0, 1, 2], 2: [2]}).rivals == ()


def test_a_second_driver_whose_epoch_the_first_one_has_gone_past_is_a_stray() -> None:
    timeline = lineage([FIRST, begun(2, 2, (1, 1))], {1: [0, 1, 2, 3, 199], 2: [2]})
    assert live(timeline) == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 199)]
    assert (timeline.newest_run, timeline.contradiction) == (1, None)


def test_a_run_goes_on_from_the_run_that_spark_committed_and_not_from_a_stray() -> None:
    starts = [FIRST, begun(2, 2, (1, 1)), begun(3, 200, (1, 199))]
    timeline = lineage(starts, {1: [0, 1, 2, 199], 2: [2], 3: [200]})
    assert live(timeline) == [(1, 0), (1, 1), (1, 2), (1, 199), (3, 200)]


def test_two_runs_that_both_go_on_contradict_each_other() -> None:
    timeline = lineage([FIRST, begun(2, 2, (1, 1))], {1: [0, 1, 2, 3], 2: [2, 3]})
    assert timeline.contradiction.older_run == 1
    assert timeline.contradiction.newer.run.number == 2
    assert live(timeline) == [(1, 0), (1, 1)]  # the epochs before the contradiction


@pytest.mark.parametrize("written", [[2], [2, 3], []])
def test_a_query_that_was_taken_back_leaves_later_epochs(written: list[int]) -> None:
    starts = [FIRST, begun(2, 2, (1, 1), "back")]
    timeline = lineage(
        starts, {1: [0, 1, 2, 3, 4], 2: written} if written else {1: [0, 1, 2, 3, 4]}
    )
    assert live(timeline) == [(1, 0), (1, 1), *((2, epoch) for epoch in written)]
    assert timeline.rivals == ()
    assert timeline.reached == max(written, default=1)


def test_a_query_that_was_taken_back_goes_on_with_later_runs() -> None:
    starts = [FIRST, begun(2, 2, (1, 1), "back"), begun(3, 4, (2, 3))]
    timeline = lineage(starts, {1: [0, 1, 2, 3, 4], 2: [2, 3], 3: [4]})
    assert live(timeline) == [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4)]


def test_an_older_run_that_goes_on_after_the_query_was_taken_back_contradicts() -> None:
    starts = [FIRST, begun(2, 2, (1, 1), "back"), begun(3, 3, (2, 2))]
    timeline = lineage(starts, {1: [0, 1, 2, 3], 2: [2, 4], 3: [3, 4]})
    assert timeline.contradiction is not None


def test_the_contradiction_that_begins_first_counts() -> None:
    starts = [FIRST, begun(2, 4, (1, 3)), begun(3, 2, (1, 1))]
    timeline = lineage(starts, {1: [0, 1, 2, 3, 4, 5], 2: [4, 5], 3: [2, 3]})
    assert timeline.contradiction.newer.run.number == 3
    assert live(timeline) == [(1, 0), (1, 1)]


@pytest.mark.parametrize("chosen", [1, 2])
def test_a_query_that_goes_back_to_an_epoch_of_one_run_ends_a_contradiction(chosen: int) -> None:
    starts = [FIRST, begun(2, 2, (1, 1)), begun(3, 4, (chosen, 3), "back")]
    timeline = lineage(starts, {1: [0, 1, 2, 3], 2: [2, 3]})
    assert timeline.contradiction is None
    assert live(timeline) == [(1, 0), (1, 1), (chosen, 2), (chosen, 3)]
    assert (timeline.newest_run, timeline.reached) == (3, 3)


def test_runs_go_on_from_each_other_after_a_contradiction_has_ended() -> None:
    starts = [FIRST, begun(2, 2, (1, 1)), begun(3, 2, (1, 1), "back"), begun(4, 3, (3, 2))]
    timeline = lineage(starts, {1: [0, 1, 2, 3], 2: [2, 3], 3: [2], 4: [3, 4]})
    assert live(timeline) == [(1, 0), (1, 1), (3, 2), (4, 3), (4, 4)]


@pytest.mark.parametrize(
    ("run", "epochs"),
    [(1, [(1, 3), (1, 2), (1, 1), (1, 0)]), (2, [(2, 3), (2, 2), (1, 1), (1, 0)])],
)
def test_each_run_has_a_timeline_of_its_own(run: int, epochs: list[tuple[int, int]]) -> None:
    written = {1: [0, 1, 2, 3], 2: [2, 3]}
    directories = [EpochDirectory(epoch, number) for number in written for epoch in written[number]]
    timeline = timeline_of([FIRST, begun(2, 2, (1, 1))], directories, run)
    assert [(each.run_number, each.epoch) for each in timeline] == epochs


def test_epochs_that_spark_skipped_are_not_there() -> None:
    timeline = lineage([FIRST, begun(2, 7, (1, 3))], {1: [0, 3], 2: [7, 9]})
    assert live(timeline) == [(1, 0), (1, 3), (2, 7), (2, 9)]


def test_a_run_whose_start_is_not_written_yet_has_run_the_last_epoch_again() -> None:
    timeline = lineage([FIRST], {1: [0, 1, 2], 2: [2]})
    assert live(timeline) == [(1, 0), (1, 1), (2, 2)]
    assert timeline.rivals == (EpochDirectory(2, 2), EpochDirectory(2, 1))
