"""What is damaged in an operator's store, how, and what is asked: the answer is right, or the error
is clear.

Cut, emptied, or with a byte changed:

    store.json                     CorruptObjectError for all but retention and the sweep
    an entry of a run              nothing: its name says all
    a manifest                     nothing: its barriers stand for it
    a barrier with a manifest      nothing
    a barrier without a manifest   CorruptObjectError for what needs its epoch
    a state file                   CorruptObjectError for what needs it

Deleted:

    store.json                     ObjectMissingError for readers; the query writes it again
    an entry of a run              nothing: numbers of runs grow all the same
    a manifest                     nothing: its barriers stand for it
    a barrier with a manifest      nothing
    a barrier without a manifest   its epoch is not whole: PartialEpochError for the query, and the
                                   epoch before is the newest
    a state file                   ObjectMissingError for what needs it

Damage never leads to an older epoch, nothing but what needs the object fails, and nothing is
deleted that a backup could not make whole.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from checkpoint_store.checkpoint_layout import STORE, parse_barrier
from checkpoint_store.errors import (
    CorruptObjectError,
    ObjectMissingError,
    PartialEpochError,
    TimestampOutOfRangeError,
    VersionNotRetainedError,
)
from tests.support.asked_operator import (
    NEWEST,
    QUESTIONS,
    added_files,
    answer,
    needed_files,
    right_answers,
    right_changes,
    state_at,
    time_of,
    written,
)
from tests.support.damage import HOWS, Damage, DamagedStore, Failure, How, described

pytestmark = pytest.mark.fault


OBJECTS = described(written().objects)
BACKUP_OR_BACK = ("restore it from a backup, or restart the query from an earlier epoch",)
ADVICE_ON_STORE = ("restore it from a backup", "start the query", "No state is lost")


def epochs_needed(question: str) -> set[int]:
    """The epochs that the answer rests on."""
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    match question.split()[0]:
        case "newest":
            return {NEWEST}
        case "shortly":
            return {numbers[0], numbers[0] + 1}
        case "changes":
            return {*range(numbers[0], numbers[1] + 1)}
        case "stream":
            return {*range(numbers[0], NEWEST + 1)}
        case "restore" | "run":
            return {numbers[0] - 1}
        case "retain" | "sweep":
            return set()
    return {numbers[0]}


def files_needed(question: str) -> set[str]:
    """The state files that the answer rests on."""
    epochs = sorted(epochs_needed(question))
    subject = question.split()[0]
    if not epochs or subject == "run":
        return set()
    if subject in ("changes", "stream"):
        start, *later = epochs
        return needed_files(start).union(*map(added_files, later))
    return needed_files(epochs[0])


def expected(damage: Damage, question: str) -> Any:
    """The answer, or the failure."""
    right, subject = right_answers()[question], question.split()[0]
    is_gone = damage.how == "delete"
    if damage.name == STORE:
        if subject in ("retain", "sweep") or (is_gone and subject in ("restore", "run")):
            return right
        return failure(damage, ADVICE_ON_STORE)
    barrier = parse_barrier(damage.name)
    if barrier is not None and barrier.directory.epoch == NEWEST:
        return expected_without_newest(damage, question)
    if damage.name in files_needed(question):
        return failure(damage, BACKUP_OR_BACK)
    return right


def failure(damage: Damage, advice: tuple[str, ...]) -> Failure:
    if damage.how == "delete":
        return Failure(ObjectMissingError, (damage.name, "is missing from", *advice))
    return Failure(CorruptObjectError, (damage.name, "is damaged (", *advice))


def expected_without_newest(damage: Damage, question: str) -> Any:
    """The newest epoch has no manifest, so all its barriers are needed."""
    right, subject = right_answers()[question], question.split()[0]
    is_needed = NEWEST in epochs_needed(question)
    if damage.how != "delete":
        if is_needed:
            return failure(damage, (*BACKUP_OR_BACK, "delete it, and start the query"))
        return right
    if subject == "sweep":
        # Nobody knows of it any more: what only it named are orphans.
        return {**right, NEWEST: "ObjectMissingError"}
    if not is_needed:
        return right
    before = NEWEST - 1
    match subject:
        case "newest":
            return before, time_of(before), state_at(before)
        case "stream":
            return before, right_changes(int(question.split()[-1]), before)
        case "time" | "shortly":
            return Failure(TimestampOutOfRangeError)
        case "restore" | "run":
            return Failure(PartialEpochError, (f"epoch {NEWEST} is incomplete",))
    return Failure(VersionNotRetainedError, (f"version {NEWEST} of", f"0 to {before}"))


def is_as_expected(outcome: Any, found: Any) -> bool:
    if isinstance(outcome, Failure):
        return outcome.fits(found)
    return bool(outcome == found)


def test_the_store_has_all_kinds_of_objects() -> None:
    assert {what.partition("/")[0] for what in OBJECTS} == {"store", "runs", "manifests", "epochs"}
    kinds = {what.split("/")[2].partition("-")[0] for what in OBJECTS if what.count("/") == 2}
    assert kinds == {"barrier", "changelog", "snapshot"}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", OBJECTS)
def test_every_question_to_a_damaged_store_is_answered_rightly_or_refused_clearly(
    what: str, how: How
) -> None:
    damage = Damage(OBJECTS[what], how)
    wrong = {}
    for question in QUESTIONS:
        outcome = expected(damage, question)
        found = answer(question, DamagedStore(written(), (damage,)))
        if not is_as_expected(outcome, found):
            wrong[question] = f"{found!s} instead of {outcome}"
    assert wrong == {}
