"""What is damaged in a table, how, and what is asked: the answer is right, or the error is clear.

Cut, emptied, or with a byte changed:

    table.json            CorruptObjectError for all but retention and the sweep
    a version             CorruptObjectError for what needs it; of the newest one, for commits, too;
                          retention and the sweep pass it over
    a file of rows        CorruptObjectError for what needs it
    a compaction          nothing: it is passed over

Deleted:

    table.json            ObjectMissingError for all but retention and the sweep
    the newest version    the one before is the newest; the query's next batch is a LostVersionError
    the oldest version    VersionNotRetainedError for what needs it, as if retention had deleted it
    another version       VersionMissingError for what needs it
    a file of rows        ObjectMissingError for what needs it
    a compaction          nothing

Nothing but what needs the object fails, and nothing is deleted that a backup could not make whole.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from checkpoint_store.errors import (
    CorruptObjectError,
    LostVersionError,
    ObjectMissingError,
    TimestampOutOfRangeError,
    VersionMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.table_layout import TABLE, parse_compaction, parse_version, version_name
from datasources.lost_changes import ChangesLostError
from tests.support.asked_table import (
    NEWEST,
    QUESTIONS,
    added_files,
    answer,
    needed_files,
    right_answers,
    right_changes,
    state_at,
    written,
)
from tests.support.damage import HOWS, Damage, DamagedStore, Failure, How, described

pytestmark = pytest.mark.fault


OBJECTS = described(written().objects)
READ_THROUGH_COMPACTION = (5, 6)
ADVICE = {
    "table.json": ("restore it from a backup", "key and options"),
    "versions": ("restore it from a backup", "other versions can be read", "by their number"),
    "data": ("restore it from a backup", "read a version that does not need it"),
}


def versions_needed(question: str) -> set[int]:
    """The versions whose documents the answer rests on."""
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    match question.split()[0]:
        case "newest" | "commit":
            return {NEWEST}
        case "shortly":
            return {numbers[0], numbers[0] + 1}
        case "changes":
            return {*range(numbers[0], numbers[1] + 1)} if numbers else {*range(NEWEST + 1)}
        case "stream":
            # A stream that has seen the newest version looks for later ones only.
            return {*range(numbers[0], NEWEST + 1)} if numbers[0] < NEWEST else set()
        case "retain" | "sweep":
            # They pass over what is damaged.
            return set()
    return {numbers[0]}


def files_needed(question: str) -> set[str]:
    """The files of rows that the answer rests on."""
    versions = sorted(versions_needed(question))
    if not versions or question in ("commit", "retain", "sweep"):
        return set()
    if question.split()[0] in ("changes", "stream"):
        start, *later = versions
        return needed_files(start).union(*map(added_files, later))
    return needed_files(versions[0])


def needs(question: str) -> set[str]:
    """All objects that the answer rests on."""
    versions = {version_name(version) for version in versions_needed(question)}
    table = set() if question in ("retain", "sweep") else {TABLE}
    return table | versions | files_needed(question)


def expected(damage: Damage, question: str) -> Any:
    """The answer, or the failure."""
    version = parse_version(damage.name)
    if damage.how == "delete" and version is not None:
        return expected_without(version, question)
    right = right_answers()[question]
    if question == "sweep" and parse_compaction(damage.name):
        # A compaction that nobody reads is not worth restoring: what only it named is gone.
        return {**right, **dict.fromkeys(READ_THROUGH_COMPACTION, "ObjectMissingError")}
    if damage.name not in needs(question):
        return right
    error = ObjectMissingError if damage.how == "delete" else CorruptObjectError
    said = "is missing from" if damage.how == "delete" else "is damaged ("
    return Failure(error, (damage.name, said, *ADVICE[damage.name.partition("/")[0]]))


def expected_without(version: int, question: str) -> Any:
    """What a version that is deleted means for each question."""
    right = right_answers()[question]
    subject = question.split()[0]
    if question == "retain":
        # One version less is there, so one more that is older is kept.
        return right
    if question == "sweep":
        if 0 < version < NEWEST:
            return right
        # Nobody knows of it any more: what only it named are orphans.
        return {**right, version: "ObjectMissingError"}
    if question == f"stream from {version}" == f"stream from {NEWEST}":
        return Failure(ChangesLostError, (f"version {NEWEST} of", "not retained", "0 to 6"))
    if version not in versions_needed(question):
        return right
    if version == NEWEST:
        older = (NEWEST - 1, state_at(NEWEST - 1))
        if subject == "commit":
            return Failure(LostVersionError, (version_name(NEWEST), "batch 8", "up to 6", "backup"))
        if question in ("newest", "changes from the beginning"):
            return older
        if subject == "stream":
            start = int(question.split()[-1])
            return older[0], right_changes(start, older[0])
        if subject in ("time", "shortly"):
            return Failure(TimestampOutOfRangeError)
        return Failure(VersionNotRetainedError, (f"version {NEWEST} of", "0 to 6"))
    if version == 0:
        if question == "changes from the beginning":
            return right
        if question in ("time of 0", "shortly after 0"):
            return Failure(TimestampOutOfRangeError)
        of_version = VersionNotRetainedError if subject != "stream" else ChangesLostError
        return Failure(of_version, ("version 0 of", f"1 to {NEWEST}"))
    if subject == "stream":
        words = (f"version {version} of", version_name(version), "from a backup", f"0 to {NEWEST}")
        return Failure(ChangesLostError, (*words, "failOnDataLoss"))
    words = (
        f"version {version} of",
        f"although versions {version - 1} and {version + 1} are there",
        version_name(version),
        "from a backup",
        f"0 to {NEWEST}, can be read by their number",
    )
    return Failure(VersionMissingError, words)


def test_the_table_has_all_kinds_of_objects() -> None:
    kinds = {what.partition("/")[0] for what in OBJECTS}
    assert kinds == {"table", "versions", "compactions", "data"}
    assert {what.split("/")[1] for what in OBJECTS if what.startswith("data/")} == {
        "compacted",
        "query-a",
    }


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", OBJECTS)
def test_every_question_to_a_damaged_table_is_answered_rightly_or_refused_clearly(
    what: str, how: How
) -> None:
    damage = Damage(OBJECTS[what], how)
    wrong = {}
    for question in QUESTIONS:
        outcome = expected(damage, question)
        found = answer(question, DamagedStore(written(), (damage,)))
        is_right = outcome.fits(found) if isinstance(outcome, Failure) else outcome == found
        if not is_right:
            wrong[question] = f"{found!s} instead of {outcome}"
    assert wrong == {}
