"""Upkeep of a table that fails in every way: no commit does, and it is tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from checkpoint_store import errors as store_errors
from checkpoint_store.errors import (
    CheckpointStoreError,
    CorruptObjectError,
    StoreAccessError,
    StoreUnavailableError,
)
from checkpoint_store.table_compaction import MergeBounds
from datasources.table_upkeep import Chore, TableUpkeep
from tests.support.fake_object_store import DictObjectStore, RefusingObjectStore
from tests.support.table_rows_of import METADATA, ScriptedTable, put, state_of

BOUNDS = MergeBounds(1 << 30, files=4)
A_DAY_LATER = 1e12
URL = "dict://store"
OPERATIONS = ("put", "get", "list", "delete")
FAILURES: list[Exception] = [
    StoreAccessError(URL, "[Errno 13] Permission denied"),
    StoreUnavailableError(URL, "delete", 5, "OSError: 503 SlowDown"),
    CorruptObjectError(URL, "versions/1.json", "its checksum differs"),
    OSError(28, "No space left on device"),
    MemoryError("out of memory"),
    KeyError("a bug of ours"),
]


@dataclass
class Table:
    """A table whose query commits as the sink does; `refuses` says what its upkeep meets."""

    objects: DictObjectStore = field(default_factory=DictObjectStore)
    refuses: Callable[[str, str], Exception | None] = lambda operation, name: None
    versions: int = 0

    def __post_init__(self) -> None:
        store = RefusingObjectStore(self.objects, lambda *call: self.refuses(*call))
        self.upkeep = TableUpkeep(store, now=lambda: A_DAY_LATER)
        self.query = ScriptedTable(self.objects)

    def commit(self) -> None:
        number = self.versions
        file = self.query.write(number, [put(number, "a", number)])
        version = self.query.publish(
            number, [file], merge=lambda version: self.upkeep.folded(METADATA, version, BOUNDS)
        )
        self.upkeep.clean_up(version.version, 2)
        self.versions += 1

    def numbers(self) -> list[int]:
        return self.query.table.versions()

    def state_files(self) -> int:
        newest = self.query.table.newest()
        assert newest is not None
        return len(newest.state)


@pytest.mark.parametrize(
    ("error", "operations"),
    [
        *((error, OPERATIONS) for error in FAILURES),
        *((OSError(5, "no answer"), (operation,)) for operation in OPERATIONS),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "-".join(one),
)
def test_no_failure_of_upkeep_reaches_a_commit(
    error: Exception, operations: tuple[str, ...]
) -> None:
    table = Table(refuses=lambda asked, _: error if asked in operations else None)
    for _ in range(105):
        table.commit()
    assert state_of(table.objects) == {n: ("a", n) for n in range(105)}
    assert table.upkeep.failures > 0
    table.refuses = lambda operation, name: None
    for _ in range(40):
        table.commit()
    assert state_of(table.objects) == {n: ("a", n) for n in range(145)}
    assert table.upkeep.failures == 0
    assert len(table.numbers()) < 12
    assert table.state_files() < 20


def test_every_error_of_the_store_can_be_raised_by_upkeep() -> None:
    """What is not an Exception would end the process; there is no such error of the store."""
    found = [one for one in vars(store_errors).values() if isinstance(one, type)]
    of_store = [one for one in found if issubclass(one, CheckpointStoreError)]
    assert len(of_store) > 15
    assert all(issubclass(one, Exception) for one in of_store)


def test_who_interrupts_the_process_is_obeyed() -> None:
    def interrupt(operation: str, name: str) -> Exception | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Table(refuses=interrupt).upkeep.clean_up(0, 2)


def test_a_failure_is_logged_once_for_each_kind_and_again_after_it_worked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()
    for said, commits in (("access", 20), ("full", 20), ("access", 8), ("", 20), ("access", 9)):
        errors = {"access": StoreAccessError(URL, "no right"), "full": OSError(28, "full")}
        error = errors.get(said)
        table.refuses = lambda asked, _, error=error: error if asked == "list" else None  # type: ignore[misc]
        for _ in range(commits):
            table.commit()
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    told = [one.getMessage() for one in warnings]
    assert [("no right" in one, "OSError" in one) for one in told] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert told[0] == (
        "deleting old versions of dict://store failed beside the commit of version 0, which is "
        "not affected: no right. It is tried again with version 1. Until then nothing is deleted. "
        "The writer must be allowed to list and to delete the objects below the table's URL"
    )
    assert all(one.exc_info is None for one in warnings)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_what_upkeep_needs_of_the_store_is_told_where_the_store_refuses_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    Table(refuses=lambda operation, _: error).upkeep.clean_up(0, 2)
    (message,) = caplog.messages
    is_refused = isinstance(error, StoreAccessError | OSError | MemoryError)
    assert ("must be allowed to" in message) == is_refused
    assert ("restore it from a backup" in message) == isinstance(error, CorruptObjectError)


def test_a_bug_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    bug = KeyError("state")
    Table(refuses=lambda operation, name: bug).upkeep.clean_up(0, 2)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is bug


def test_a_chore_that_fails_is_tried_after_one_two_four_and_at_most_32_commits() -> None:
    chore = Chore("sweeping", "", "")
    tried = []
    for version in range(300):
        if chore.is_due(version):
            tried.append(version)
            chore.failed(version, "OSError")
    assert tried == [0, 1, 3, 7, 15, 31, 63, 95, 127, 159, 191, 223, 255, 287]
    assert chore.failures == len(tried)
    assert chore.is_due(3), "the table was made anew"
    chore.worked()
    assert (chore.failures, chore.due) == (0, 0)


def test_the_versions_after_a_failure_count_it() -> None:
    table = Table(refuses=lambda operation, _: OSError() if operation == "list" else None)
    found = []
    for number in range(5):
        file = table.query.write(number, [put(number, "a", number)])
        version = table.query.publish(number, [file], failed_upkeep=table.upkeep.failures)
        table.upkeep.clean_up(number, 2)
        found.append(version.failed_upkeep)
    assert found == [0, 1, 2, 2, 3]
