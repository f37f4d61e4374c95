"""Each question to a table with one damaged object gets a right answer or a clear error.

An object that is cut, emptied, or has a changed byte:

    table.json            CorruptObjectError for all but retention and the sweep
    a version             CorruptObjectError if the question needs the version, and for commits if
                          the version is the newest; retention and the sweep ignore the version
    a file of rows        CorruptObjectError if the question needs the file
    a compaction          no effect: readers ignore the compaction

A deleted object:

    table.json            ObjectMissingError for all but retention and the sweep
    the newest version    the version before is the newest, and the query's next batch is a
                          LostVersionError
    the oldest version    VersionNotRetainedError if the question needs the version, as after
                          retention
    another version       VersionMissingError if the question needs the version
    a file of rows        ObjectMissingError if the question needs the file
    a compaction          no effect

Only questions that need the damaged object fail. No command deletes objects from which a backup
could repair the table.
"""

from __future__ import annotations

import pytest

from checkpoint_store import object_names
from checkpoint_store.errors import (
    LostVersionError,
    TimestampOutOfRangeError,
    VersionMissingError,
    VersionNotRetainedError,
)
from checkpoint_store.tables.table_layout import parse_compaction, parse_version, version_name
from datasources.streams.lost_changes import ChangesLostError
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
from tests.support.tables.asked_table import TABLE

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("without_threads")]


OBJECTS = described(TABLE.intact.objects)
NEWEST = TABLE.newest
READ_THROUGH_COMPACTION = (5, 6)
ADVICE = {
    "table.json": ("restore it from a backup", "key and options"),
    "versions": ("restore it from a backup", "other versions can be read", "by their number"),
    "data": ("restore it from a backup", "read a version that does not need it"),
}


def expected(damage: Damage, question: str) -> Answer | Failure:
    """The right answer or the failure for a question after this damage."""
    version = parse_version(damage.name)
    if damage.how == "delete" and version is not None:
        return expected_without(version, question)
    if question == "sweep" and parse_compaction(damage.name):
        # Nobody reads the compaction, so nobody restores it; files named only by the compaction are
        # gone.
        return TABLE.swept(*READ_THROUGH_COMPACTION)
    if damage.name in needs(question):
        return unusable(damage, *ADVICE[damage.name.partition("/")[0]])
    return TABLE.right_answers[question]


def needs(question: str) -> set[str]:
    """The names of all objects that the answer depends on."""
    versions = {version_name(version) for version in TABLE.versions_needed(question)}
    table = set() if question in ("retain", "sweep") else {object_names.TABLE}
    return table | versions | TABLE.files_needed(question)


def expected_without(version: int, question: str) -> Answer | Failure:
    """The outcome of a question after a version was deleted."""
    if question == "sweep":
        # The table no longer has a trace of a deleted first or last version.
        return TABLE.swept() if 0 < version < NEWEST else TABLE.swept(version)
    if question == f"stream from {version}" == f"stream from {NEWEST}":
        return Failure(ChangesLostError, (f"version {NEWEST} of", "ends at version 6"))
    if version not in TABLE.versions_needed(question):
        # Retention finds one version less, so retention keeps one older version more.
        return TABLE.right_answers[question]
    if version == NEWEST:
        return expected_without_newest(question)
    if version == 0:
        return expected_without_oldest(question)
    if subject_of(question) == "stream":
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


def expected_without_newest(question: str) -> Answer | Failure:
    match subject_of(question):
        case "commit":
            return Failure(LostVersionError, (version_name(NEWEST), "batch 8", "up to 6", "backup"))
        case "newest" | "all" | "stream":
            return TABLE.older(question, NEWEST - 1)
        case "time" | "shortly":
            return Failure(TimestampOutOfRangeError)
    return Failure(VersionNotRetainedError, (f"version {NEWEST} of", "0 to 6"))


def expected_without_oldest(question: str) -> Answer | Failure:
    if question == "all changes":
        return TABLE.right_answers[question]
    if question in ("time of 0", "shortly after 0"):
        return Failure(TimestampOutOfRangeError)
    is_of_a_stream = subject_of(question) == "stream"
    error = ChangesLostError if is_of_a_stream else VersionNotRetainedError
    return Failure(error, ("version 0 of", f"1 to {NEWEST}"))


def test_the_next_batch_of_the_table_as_it_was_is_committed() -> None:
    assert TABLE.right_answers["commit"] == (NEWEST + 1, TABLE.state_at(NEWEST + 1))


def test_the_table_has_all_kinds_of_objects() -> None:
    kinds = {what.partition("/")[0] for what in OBJECTS}
    assert kinds == {"table", "versions", "compactions", "data"}
    assert {what.split("/")[1] for what in OBJECTS if what.startswith("data/")} == {
        "compacted",
        "query-a",
    }


def test_no_answer_rests_on_the_lengths_that_listings_say() -> None:
    assert TABLE.lengthless().right_answers == TABLE.right_answers


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", OBJECTS)
def test_every_question_to_a_damaged_table_is_answered_rightly_or_refused_clearly(
    what: str, how: How
) -> None:
    assert TABLE.misjudged(Damage(OBJECTS[what], how), expected) == {}
