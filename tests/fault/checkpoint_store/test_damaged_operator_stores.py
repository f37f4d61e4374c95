"""Each question to an operator's store with one damaged object gets a right answer or a clear
error.

An object that is cut, emptied, or has a changed byte:

    store.json                     CorruptObjectError for all but retention and the sweep
    an entry of a run              no effect: the name of the entry says all
    a manifest                     no effect: the barriers replace the manifest
    a barrier with a manifest      no effect
    a barrier without a manifest   CorruptObjectError if the question needs the epoch
    a state file                   CorruptObjectError if the question needs the file

A deleted object:

    store.json                     ObjectMissingError for readers; the query writes a new object
    an entry of a run              no effect: numbers of runs still grow
    the start of a run             no effect if the run continued from the run before. If the query
                                   was taken back before the run: ContradictingRunsError, and
                                   RunChoiceError for a driver that takes the query back
    a manifest                     no effect: the barriers replace the manifest
    a barrier with a manifest      no effect
    a barrier without a manifest   the epoch is partial: PartialEpochError for the query, and the
                                   epoch before is the newest
    a state file                   ObjectMissingError if the question needs the file

Damage never leads to an older epoch. A question without need of the damaged object succeeds. No
command deletes an object if a backup could use the object to repair the store.
"""

from __future__ import annotations

import pytest

from checkpoint_store.epochs.operator_layout import parse_barrier, parse_begun
from checkpoint_store.errors import (
    PartialEpochError,
    TimestampOutOfRangeError,
    VersionNotRetainedError,
)
from checkpoint_store.object_names import STORE
from checkpoint_store.runs.run_errors import ContradictingRunsError, RunChoiceError
from tests.support.operators.asked_operator import OPERATOR
from tests.support.stores.damage import (
    HOWS,
    Answer,
    Damage,
    Failure,
    How,
    described,
    subject_of,
    unusable,
)

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]


OBJECTS = described(OPERATOR.intact.objects)
NEWEST = OPERATOR.newest
BACKUP_OR_BACK = "If it is of a query, restart the query from "
ADVICE_ON_STORE = ("restore it from a backup", "start the query", "No state is lost")


def expected(damage: Damage, question: str) -> Answer | Failure:
    """The right answer or the failure for a question after this damage."""
    right, subject = OPERATOR.right_answers[question], subject_of(question)
    if damage.name == STORE:
        is_made_again = damage.how == "delete" and subject in ("restore", "run")
        if is_made_again or subject in ("retain", "sweep"):
            return right
        return unusable(damage, *ADVICE_ON_STORE)
    begun = parse_begun(damage.name)
    if begun is not None and begun.way == "back" and damage.how == "delete":
        return expected_without_start(question, begun.first_epoch)
    barrier = parse_barrier(damage.name)
    if barrier is not None and barrier.directory.epoch == NEWEST:
        return expected_without_newest(damage, question)
    if damage.name in OPERATOR.files_needed(question):
        return unusable(damage, BACKUP_OR_BACK)
    return right


def expected_without_start(question: str, first_epoch: int) -> Answer | Failure:
    """The outcome if the start of a run is deleted.

    The store no longer says that the query was taken back, so two runs seem to have continued from
    the same epoch. The runs before the epoch are known.
    """
    is_earlier = question in {f"restore before {n}" for n in range(first_epoch + 1)}
    if is_earlier or question == "sweep":
        return OPERATOR.right_answers[question]
    if question == f"run {NEWEST - 1}":
        # The driver of this run takes the query back, and cannot choose between the two runs.
        return Failure(RunChoiceError, ("nobody can tell", "Say with --run"))
    return Failure(ContradictingRunsError, (f"epoch {first_epoch}", "cowstate attach"))


def expected_without_newest(damage: Damage, question: str) -> Answer | Failure:
    """The outcome if the newest epoch has no manifest, so the restore needs all barriers."""
    is_gone = damage.how == "delete"
    if is_gone and question == "sweep":
        # The store no longer has a trace of the epoch.
        return OPERATOR.swept(NEWEST)
    if NEWEST not in OPERATOR.versions_needed(question):
        return OPERATOR.right_answers[question]
    if not is_gone:
        return unusable(damage, BACKUP_OR_BACK, "delete it if it is there, and start the query")
    match subject_of(question):
        case "newest" | "stream":
            return OPERATOR.older(question, NEWEST - 1)
        case "time" | "shortly":
            return Failure(TimestampOutOfRangeError)
        case "restore" | "run":
            return Failure(PartialEpochError, (f"epoch {NEWEST} is incomplete",))
    return Failure(VersionNotRetainedError, (f"version {NEWEST} of", f"0 to {NEWEST - 1}"))


def test_a_new_run_of_the_operator_as_it_was_goes_on_from_the_epoch_before() -> None:
    for epoch in (NEWEST - 1, NEWEST + 1):
        answer = epoch, OPERATOR.state_at(epoch)
        assert OPERATOR.right_answers[f"run {epoch}"] == answer


def test_the_store_has_all_kinds_of_objects() -> None:
    directories = {what.partition("/")[0] for what in OBJECTS}
    assert directories == {"store", "runs", "begun", "manifests", "epochs"}
    kinds = {what.split("/")[2].partition("-")[0] for what in OBJECTS if what.count("/") == 2}
    assert kinds == {"barrier", "changelog", "snapshot"}


def test_no_answer_rests_on_the_lengths_that_listings_say() -> None:
    assert OPERATOR.lengthless().right_answers == OPERATOR.right_answers


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", OBJECTS)
def test_every_question_to_a_damaged_store_is_answered_rightly_or_refused_clearly(
    what: str, how: How
) -> None:
    assert OPERATOR.misjudged(Damage(OBJECTS[what], how), expected) == {}
