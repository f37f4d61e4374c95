"""An attached query goes on from the right epoch, for every script of epochs written by runs."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import pytest

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import BegunName, EpochDirectory, Way
from checkpoint_store.errors import PartialEpochError
from checkpoint_store.runs.attachment_plan import Attachment, StoredRuns, attachments_of
from checkpoint_store.runs.run_errors import NoEpochToAttachError, RunChoiceError

HERE, ELSEWHERE = "a" * 12, "b" * 12
PARTIAL = "partial"

Epochs = Mapping[int, Mapping[int, object | None] | range]
"""What each run completed at its epochs; a range: whole epochs whose contents nobody else has."""


def begun(
    run: int,
    first: int,
    base: tuple[int, int] | None,
    way: Way = "forward",
    checkpoint: str | None = ELSEWHERE,
) -> BegunName:
    """Make the name of a run's start. `base`: number of a run, and epoch."""
    start = None if base is None else EpochDirectory(base[1], base[0])
    return BegunName(Run(run, f"id-{run}"), first, start, way, checkpoint)


def stored(starts: list[BegunName], epochs: Epochs) -> StoredRuns:
    contents = {
        EpochDirectory(epoch, run): (run, epoch) if isinstance(wrote, range) else wrote[epoch]
        for run, wrote in epochs.items()
        for epoch in wrote
    }

    def completed(key: EpochDirectory) -> Any:
        if contents[key] == PARTIAL:
            raise PartialEpochError("url", key.epoch, (0,), (1,))
        return contents[key]

    return StoredRuns("url", starts, frozenset(contents), completed, operator.eq)


def attachment(
    starts: list[BegunName], epochs: Epochs, committed: int, run: str | None = None
) -> Attachment:
    (only,) = attachments_of([stored(starts, epochs)], HERE, committed, run, is_under_way=True)
    return only


def base_of(
    starts: list[BegunName], epochs: Epochs, committed: int, run: str | None = None
) -> tuple[int, int]:
    """Return the run number and the epoch of the base."""
    base = attachment(starts, epochs, committed, run).base
    return base.run_number, base.epoch


FIRST = begun(1, 0, None)
CONTRADICTING = [FIRST, begun(2, 4, (1, 3))]
BOTH_WENT_ON: Epochs = {1: range(6), 2: range(4, 7)}


def test_the_newest_epoch_that_is_committed_is_the_base() -> None:
    fifth, sixth, seventh = (EpochDirectory(epoch, 1) for epoch in (5, 6, 7))
    planned = Attachment(fifth, left_out=(sixth, seventh), cuts=(seventh,), is_needed=True)
    assert attachment([FIRST], {1: range(8)}, 5) == planned


def test_an_epoch_that_may_be_under_way_is_not_cut_off() -> None:
    assert attachment([FIRST], {1: range(7)}, 5).cuts == (EpochDirectory(5, 1),)
    assert attachment([FIRST], {1: range(6)}, 5).cuts == (EpochDirectory(5, 1),)


def test_the_epoch_under_way_is_cut_if_a_note_of_the_run_says_that_it_is_committed() -> None:
    """The later of two notes decides, in whatever order the store lists the notes."""
    notes = [begun(1, reached, None, "reached") for reached in (3, 7)]
    for listed in (notes, notes[::-1]):
        assert attachment([FIRST, *listed], {1: range(7)}, 5).cuts == (EpochDirectory(6, 1),)


def test_epochs_that_spark_left_out_are_passed_over() -> None:
    assert base_of([FIRST], {1: {0: "a", 3: "b"}}, 7) == (1, 3)
    assert base_of([FIRST], {1: {0: "a", 3: "b", 6: None}}, 7) == (1, 3)


def test_a_part_of_a_committed_epoch_is_never_passed_over() -> None:
    """I5: a committed epoch with missing barriers is an error."""
    with pytest.raises(PartialEpochError):
        attachment([FIRST], {1: {0: "a", 1: PARTIAL}}, 1)
    assert base_of([FIRST], {1: {0: "a", 1: PARTIAL}}, 0) == (1, 0)


def test_a_stray_of_a_second_driver_does_not_count() -> None:
    assert base_of([FIRST, begun(2, 4, (1, 3))], {1: range(9), 2: range(4, 5)}, 8) == (1, 8)


def test_a_run_whose_base_is_gone_cannot_be_attached() -> None:
    went_on = [FIRST, begun(2, 7, (1, 6))]
    with pytest.raises(NoEpochToAttachError, match=r"up to batch 3.*has epochs 7 to 8"):
        attachment(went_on, {2: range(7, 9)}, 3)


@pytest.mark.parametrize(("epochs", "left_out"), [({}, 0), ({1: range(4, 9)}, 5)])
def test_an_operator_before_its_start_has_no_base(epochs: Epochs, left_out: int) -> None:
    planned = attachment([begun(1, 4, None)], epochs, 3)
    assert (planned.base, len(planned.left_out)) == (None, left_out)


def test_runs_that_contradict_each_other_later_need_no_choice() -> None:
    planned = attachment(CONTRADICTING, BOTH_WENT_ON, 3)
    assert planned.base == EpochDirectory(3, 1)
    assert {(each.run_number, each.epoch) for each in planned.left_out} == {
        *((1, epoch) for epoch in (4, 5)),
        *((2, epoch) for epoch in (4, 5, 6)),
    }


def test_runs_that_contradict_each_other_are_named_with_what_they_wrote() -> None:
    with pytest.raises(RunChoiceError) as refused:
        attachment(CONTRADICTING, BOTH_WENT_ON, 5)
    assert refused.value.runs == (
        "run 1 (id-1) wrote epochs 0 to 5",
        "run 2 (id-2) wrote epochs 4 to 6 from epoch 3 on",
    )
    assert "--run" in str(refused.value)


@pytest.mark.parametrize(("run", "base"), [("1", (1, 5)), ("2", (2, 5)), ("id-2", (2, 5))])
def test_the_chosen_run_counts(run: str, base: tuple[int, int]) -> None:
    assert base_of(CONTRADICTING, BOTH_WENT_ON, 5, run) == base


def test_what_the_chosen_run_replaces_is_left_out() -> None:
    planned = attachment(CONTRADICTING, BOTH_WENT_ON, 5, "2")
    assert [(each.run_number, each.epoch) for each in planned.left_out] == [(1, 4), (1, 5), (2, 6)]


def test_two_runs_that_wrote_the_last_epoch_differently_need_a_choice() -> None:
    epochs: Epochs = {1: range(5), 2: range(4, 5)}
    with pytest.raises(RunChoiceError, match="nobody can tell"):
        attachment(CONTRADICTING, epochs, 4)
    assert base_of(CONTRADICTING, epochs, 4, "1") == (1, 4)
    assert base_of(CONTRADICTING, epochs, 4, "2") == (2, 4)
    assert base_of(CONTRADICTING, epochs, 3) == (1, 3)


def test_two_runs_that_wrote_the_last_epoch_alike_need_no_choice() -> None:
    epochs: Epochs = {1: {3: "a", 4: "same"}, 2: {4: "same"}}
    assert base_of(CONTRADICTING, epochs, 4) == (2, 4)


@pytest.mark.parametrize("wrote", [PARTIAL, None])
def test_of_two_runs_the_run_with_the_whole_epoch_counts(wrote: object) -> None:
    assert base_of(CONTRADICTING, {1: {3: "a", 4: "b"}, 2: {4: wrote}}, 4) == (1, 4)
    assert base_of(CONTRADICTING, {1: {3: "a", 4: wrote}, 2: {4: "b"}}, 4) == (2, 4)


def test_a_checkpoint_from_before_the_query_was_taken_back_needs_a_choice() -> None:
    starts, epochs = [FIRST, begun(2, 4, (1, 3), "back")], {1: range(9), 2: range(4, 6)}
    with pytest.raises(RunChoiceError, match=r"run 1 .*run 2 "):
        attachment(starts, epochs, 8)
    assert base_of(starts, epochs, 8, "1") == (1, 8)
    assert base_of(starts, epochs, 3) == (1, 3)


def test_a_chosen_run_without_a_whole_committed_epoch_is_refused() -> None:
    epochs: Epochs = {1: range(6), 2: {4: None}}
    with pytest.raises(RunChoiceError, match="run 2 has no whole epoch up to batch 4"):
        attachment(CONTRADICTING, epochs, 4, "2")


def test_a_chosen_run_that_begins_after_the_last_batch_goes_on_from_its_base() -> None:
    starts = [*CONTRADICTING, begun(3, 6, (2, 5))]
    assert base_of(starts, {**BOTH_WENT_ON, 3: range(6, 8)}, 5, "3") == (2, 5)


@pytest.mark.parametrize("run", ["3", "id-3", "id"])
def test_a_run_that_is_not_there_is_refused(run: str) -> None:
    with pytest.raises(RunChoiceError, match=f"there is no run {run}. run 1 .*run 2 "):
        attachment(CONTRADICTING, BOTH_WENT_ON, 5, run)


class TestCopies:
    """Run 1 goes on at one location. Run 2 attached the store to another location, where run 3 goes
    on."""

    starts = (
        begun(1, 0, None, checkpoint="c" * 12),
        begun(2, 4, (1, 3), "back"),
        begun(3, 4, (1, 3)),
    )

    def test_a_third_location_may_be_of_either_of_them(self) -> None:
        epochs: Epochs = {1: range(6), 3: range(4, 6)}
        with pytest.raises(RunChoiceError, match=r"run 1 .*run 3 "):
            attachment([*self.starts], epochs, 5)
        assert base_of([*self.starts], epochs, 5, "1") == (1, 5)
        assert base_of([*self.starts], epochs, 5, "3") == (3, 5)
        assert base_of([*self.starts], epochs, 3) == (1, 3)

    def test_a_store_that_belongs_to_the_checkpoint_has_its_epochs(self) -> None:
        own = [begun(1, 0, None, checkpoint="c" * 12), begun(2, 4, (1, 3), "back", HERE)]
        assert base_of(own, {1: range(6), 2: range(4, 6)}, 5) == (2, 5)

    def test_an_epoch_that_both_wrote_alike_needs_no_choice(self) -> None:
        """Epoch 4 was planned before the checkpoint was moved, and ran again afterwards."""
        assert base_of([*self.starts], {1: {3: "a", 4: "b"}, 3: {4: "b", 5: "c"}}, 5) == (3, 5)

    def test_runs_that_told_no_location_may_be_of_copies(self) -> None:
        starts = [begun(1, 0, None, checkpoint=None), begun(2, 4, (1, 3), checkpoint=None)]
        with pytest.raises(RunChoiceError):
            attachment(starts, {1: range(9), 2: range(4, 5)}, 8)

    def test_a_copy_may_be_from_before_the_query_was_taken_back(self) -> None:
        starts, epochs = [FIRST, begun(2, 4, (1, 3), "back")], {1: range(9), 2: range(4, 7)}
        with pytest.raises(RunChoiceError):
            attachment(starts, epochs, 6)
        own = [begun(1, 0, None, checkpoint=HERE), begun(2, 4, (1, 3), "back", HERE)]
        assert base_of(own, epochs, 6) == (2, 6)

    def test_a_second_driver_of_one_checkpoint_is_no_copy(self) -> None:
        assert base_of(CONTRADICTING, {1: range(9), 2: range(4, 5)}, 8) == (1, 8)


def test_each_operator_has_a_base_of_its_own() -> None:
    stores = [stored([FIRST], {1: range(5)}), stored([FIRST], {1: {0: "a", 2: "b"}})]
    planned = attachments_of(stores, HERE, 4, is_under_way=True)
    assert [each.base for each in planned] == [EpochDirectory(4, 1), EpochDirectory(2, 1)]


def test_a_number_has_to_be_the_same_run_everywhere() -> None:
    other = BegunName(Run(2, "other"), 4, EpochDirectory(3, 1), "forward", ELSEWHERE)
    renumbered = BegunName(Run(3, "id-2"), 4, EpochDirectory(3, 1), "forward", ELSEWHERE)
    stores = [
        stored(CONTRADICTING, BOTH_WENT_ON),
        stored([FIRST, other, renumbered], {1: range(6), 2: {4: None}, 3: range(4, 7)}),
    ]
    with pytest.raises(RunChoiceError, match="id-2 and other"):
        attachments_of(stores, HERE, 5, "2", is_under_way=True)
    planned = attachments_of(stores, HERE, 5, "id-2", is_under_way=True)
    assert [each.base for each in planned] == [EpochDirectory(5, 2), EpochDirectory(5, 3)]


def test_where_the_chosen_run_wrote_nothing_what_was_before_it_counts() -> None:
    stores = [stored(CONTRADICTING, BOTH_WENT_ON), stored([FIRST], {1: range(6)})]
    planned = attachments_of(stores, HERE, 5, "2", is_under_way=True)
    assert [each.base for each in planned] == [EpochDirectory(5, 2), EpochDirectory(3, 1)]


def test_an_attached_store_needs_nothing_more() -> None:
    starts = [*CONTRADICTING, begun(3, 6, (2, 5), "back", HERE)]
    for run in (None, "2"):
        planned = attachment(starts, BOTH_WENT_ON, 5, run)
        assert (planned.base, planned.is_needed) == (EpochDirectory(5, 2), False)


def test_a_query_that_has_gone_on_needs_nothing_more() -> None:
    starts = [FIRST, begun(2, 4, (1, 3), "back", HERE), begun(3, 4, (1, 3), checkpoint=HERE)]
    epochs: Epochs = {1: range(6), 3: {4: "a", 5: "b", 6: PARTIAL}}
    assert not attachment(starts, epochs, 5).is_needed


def test_another_choice_is_a_change() -> None:
    starts = [*CONTRADICTING, begun(3, 6, (2, 5), "back", HERE)]
    planned = attachment(starts, BOTH_WENT_ON, 5, "1")
    assert (planned.base, planned.is_needed) == (EpochDirectory(5, 1), True)


def test_a_query_that_was_taken_back_unseen_needs_it() -> None:
    starts = [begun(1, 0, None, checkpoint=HERE)]
    assert attachment(starts, {1: range(9)}, 3).is_needed
    assert not attachment(starts, {1: range(5)}, 3).is_needed


def test_a_part_of_an_epoch_of_the_other_run_does_not_hinder_a_choice() -> None:
    starts = [begun(1, 0, None, checkpoint=HERE), begun(2, 4, (1, 3), checkpoint=HERE)]
    epochs: Epochs = {1: range(5), 2: {4: PARTIAL, 5: PARTIAL}}
    assert base_of(starts, epochs, 4, "1") == (1, 4)
