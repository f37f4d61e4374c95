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
    """The answer, or the failure."""
    version = parse_version(damage.name)
    if damage.how == "delete" and version is not None:
        return expected_without(version, question)
    if question == "sweep" and parse_compaction(damage.name):
        # A compaction that nobody reads is not worth restoring: what only it named is gone.
        return TABLE.swept(*READ_THROUGH_COMPACTION)
    if damage.name in needs(question):
        return unusable(damage, *ADVICE[damage.name.partition("/")[0]])
    return TABLE.right_answers[question]


def needs(question: str) -> set[str]:
    """All objects that the answer rests on."""
    versions = {version_name(version) for version in TABLE.versions_needed(question)}
    table = set() if question in ("retain", "sweep") else {object_names.TABLE}
    return table | versions | TABLE.files_needed(question)


def expected_without(version: int, question: str) -> Answer | Failure:
    """What a version that is deleted means for each question."""
    if question == "sweep":
        # Nobody knows of the first or the last one any more.
        return TABLE.swept() if 0 < version < NEWEST else TABLE.swept(version)
    if question == f"stream from {version}" == f"stream from {NEWEST}":
        return Failure(ChangesLostError, (f"version {NEWEST} of", "ends at version 6"))
    if version not in TABLE.versions_needed(question):
        # Retention finds one version less, so it keeps one more that is older.
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
