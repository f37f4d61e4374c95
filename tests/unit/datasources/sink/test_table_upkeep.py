"""Failing upkeep of a table never fails a commit, and is tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpoint_store.errors import CorruptObjectError, StoreAccessError, StoreUnavailableError
from checkpoint_store.objects.object_store import ObjectStore
from checkpoint_store.tables.table_compaction import MergeBounds
from checkpoint_store.tables.table_version import TableVersion
from datasources.options.table_options import SinkOptions, parse_sink_options
from datasources.sink import table_upkeep
from datasources.sink.table_upkeep import TableUpkeep
from tests.support.stores.fake_object_store import DictObjectStore, RefusingObjectStore
from tests.support.tables.table_rows_of import METADATA, ScriptedTable, put, state_of

URL = "dict://store"
BOUNDS = MergeBounds(1 << 30, files=4)
OPTIONS = SinkOptions(URL, min_versions_to_retain=2)
A_DAY_LATER = 1e12
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
class CommittedTable:
    """A table whose query commits as the sink does. `refuses` returns the error of a store
    operation during upkeep, None for no error."""

    objects: DictObjectStore = field(default_factory=DictObjectStore)
    refuses: Callable[[str, str], Exception | None] = lambda operation, name: None
    versions: int = 0
    options: SinkOptions | None = None

    def __post_init__(self) -> None:
        store = RefusingObjectStore(self.objects, lambda *call: self.refuses(*call))
        self.upkeep = TableUpkeep(store, now=lambda: A_DAY_LATER)
        self.query = ScriptedTable(self.objects)

    def process_of(self, options: SinkOptions) -> None:
        """Let each commit run in a new process."""
        self.options = options

    def commits(self, count: int) -> None:
        for _ in range(count):
            self.commit()

    def newest(self) -> TableVersion:
        return self.query.table.newest()

    def failed_upkeep(self) -> int:
        return self.newest().failed_upkeep

    def no_right(self, tried: list[int]) -> Exception:
        """Return the error of a refused operation, and note the version of the commit."""
        if self.versions not in tried:
            tried.append(self.versions)
        return StoreAccessError(URL, "no right")

    def commit(self) -> None:
        if self.options is not None:
            table_upkeep._upkeep_at.cache_clear()
            self.upkeep = table_upkeep.upkeep_of(self.options)
        number = self.versions
        file = self.query.write(number, [put(number, "a", number)])
        self.query.publish(
            number,
            [file],
            finish=lambda version: self.upkeep.done_before(METADATA, version, BOUNDS, OPTIONS),
        )
        self.versions += 1

    def numbers(self) -> list[int]:
        return self.query.table.versions()


@pytest.mark.parametrize(
    ("error", "operations"),
    [
        *((error, OPERATIONS) for error in FAILURES),
        *((OSError(5, "no answer"), (operation,)) for operation in OPERATIONS),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, Exception) else "-".join(it),
)
@pytest.mark.long
def test_no_failed_upkeep_reaches_a_commit(error: Exception, operations: tuple[str, ...]) -> None:
    table = CommittedTable(refuses=lambda asked, _: error if asked in operations else None)
    table.commits(105)
    assert state_of(table.objects) == {n: ("a", n) for n in range(105)}
    assert table.upkeep.failures > 0
    table.refuses = lambda operation, name: None
    table.commits(40)
    assert state_of(table.objects) == {n: ("a", n) for n in range(145)}
    assert table.upkeep.failures == 0
    assert len(table.numbers()) < 12
    assert len(table.newest().state) < 20


def test_who_interrupts_the_process_is_obeyed() -> None:
    def interrupt(operation: str, name: str) -> Exception | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CommittedTable(refuses=interrupt).commit()


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_what_upkeep_needs_of_the_store_is_told_where_the_store_refuses_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    CommittedTable(refuses=lambda operation, _: error).commit()
    (message,) = caplog.messages
    assert message.startswith("deleting expired versions of dict://store failed, which harms no ")
    is_refused = isinstance(error, StoreAccessError | OSError | MemoryError)
    assert ("must be allowed to" in message) == is_refused
    assert ("restore it from a backup" in message) == isinstance(error, CorruptObjectError)


def test_a_bug_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    bug = KeyError("state")
    CommittedTable(refuses=lambda operation, name: bug).commit()
    (record,) = caplog.records
    assert record.exc_info[1] is bug


def test_a_version_counts_what_failed_before_it_was_committed() -> None:
    table = CommittedTable(refuses=lambda operation, _: OSError() if operation == "list" else None)
    counts = []
    for refused in (True, False):
        if not refused:
            table.refuses = lambda operation, name: None
        for _ in range(6):
            table.commit()
            counts.append(table.failed_upkeep())
    assert counts == [1, 2, 3, 3, 4, 4, 4, 4, 0, 0, 0, 0]


class TestProcessesThatEndAfterEachCommit:
    """Spark ends a worker that has been idle for about a minute."""

    @pytest.fixture
    def table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommittedTable]:
        refused = CommittedTable()

        def opened(url: str, storage_options: object) -> ObjectStore:
            return RefusingObjectStore(refused.objects, lambda *call: refused.refuses(*call))

        monkeypatch.setattr(table_upkeep, "open_object_store", opened)
        refused.process_of(parse_sink_options({"path": str(tmp_path), "keys": "id"}))
        yield refused
        table_upkeep._upkeep_at.cache_clear()

    def test_the_count_grows_the_chore_waits_and_one_warning_is_given(
        self, table: CommittedTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        table.commits(15)
        caplog.clear()
        tried: list[int] = []
        table.refuses = lambda operation, _: (
            table.no_right(tried) if operation == "delete" else None
        )
        counts = []
        for _ in range(60):
            table.commit()
            counts.append(table.failed_upkeep())
        assert tried == [22, 23, 24, 28, 32, 48, 64]
        assert [counts[version - 15] for version in tried] == [1, 2, 3, 4, 5, 6, 7]
        assert counts == sorted(counts)
        told = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(told) == 1
        assert "no right" in told[0].getMessage()
        table.refuses = lambda operation, name: None
        table.commits(25)
        assert table.failed_upkeep() == 0
        assert len(table.numbers()) < 13
