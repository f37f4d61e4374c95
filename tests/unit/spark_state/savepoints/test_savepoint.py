"""Savepoints and restores of operators work without Spark."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import (
    CheckpointStoreError,
    CorruptObjectError,
    NotAStoreError,
    StoreMismatchError,
    VersionNotRetainedError,
)
from checkpoint_store.files.database_readers import DatabaseReaderError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.operators.epoch_files import AttemptFiles
from checkpoint_store.operators.epoch_pins import PIN_SECONDS, EpochPins
from checkpoint_store.operators.operator_errors import NotAnOperatorError
from checkpoint_store.state_reader import open_store
from cowstate.cli.command_line import main
from spark_state import Savepoint, restore, savepoint
from spark_state.errors import ConfigurationError
from spark_state.savepoints import operator_copy
from spark_state.savepoints import savepoint as module
from spark_state.subtasks.epoch_request import BackendSettings, RestoreSource
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.operator_states import NotesValues
from tests.support.operators.subtasks import (
    KEY_SCHEMA,
    Host,
    Totals,
    operator,
    stored_totals,
)
from tests.support.operators.watched_files import watch_files

KEYS = [f"key {number}" for number in range(50)]
BACKENDS = {"heap": BackendSettings(), "rocksdb": BackendSettings(kind="rocksdb")}
OFTEN = replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2)


@dataclass
class Query:
    """A query with an operator in `store`, and the place `saved` for savepoints of the operator."""

    folder: Path
    maintenance: Maintenance

    def __post_init__(self) -> None:
        self.store, self.saved = self.folder / "query" / "totals", self.folder / "saved"

    def run(
        self, epochs: range, parallelism: int = 2, run_id: str = "run", **changes: Any
    ) -> Totals:
        """Run epochs with a row of each key. Return the output of the last epoch."""
        of_spec = {"key_schema_json": KEY_SCHEMA, "checkpoints": OFTEN, **changes}
        spec = operator(self.folder, parallelism=parallelism, **of_spec)
        output: Totals = {}
        with ExitStack() as at_end:
            hosts = [Host(spec, subtask, run_id) for subtask in range(parallelism)]
            for host in hosts:
                at_end.callback(host.open(self.maintenance).close)
            for epoch in epochs:
                for host in hosts:
                    output |= host.epoch(epoch, [(key, epoch) for key in KEYS])
                    host.finish_maintenance()
        return output

    def save(self, epoch: int | None = None) -> tuple[Savepoint, ...]:
        return savepoint(str(self.store), str(self.saved), epoch=epoch)

    def restore(self) -> tuple[Savepoint, ...]:
        return restore(str(self.saved), str(self.store))


@pytest.fixture
def query(tmp_path: Path, maintenance: Maintenance) -> Query:
    return Query(tmp_path, maintenance)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slices", [1, 7])
def test_a_savepoint_is_read_where_it_was_copied_to(
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    slices: int,
) -> None:
    monkeypatch.setattr(operator_copy, "ROWS_AT_ONCE", 1 + 50 * 7 // slices)
    expected = query.run(range(7), backend=BACKENDS[backend])
    (written,) = query.save()
    assert (written.epoch, written.subtasks, written.entries) == (6, 2, len(KEYS))
    shutil.rmtree(query.folder / "query")
    shutil.move(query.saved, query.folder / "elsewhere")
    assert stored_totals(query.folder / "elsewhere") == expected
    names = [path.name for path in (query.folder / "elsewhere").rglob("*") if path.is_file()]
    assert not [name for name in names if name.startswith(("changelog", "database", "table"))]


@pytest.mark.parametrize("before", BACKENDS)
@pytest.mark.parametrize("after", BACKENDS)
def test_a_query_goes_on_from_a_restored_store_with_any_backend(
    query: Query, before: str, after: str
) -> None:
    query.run(range(5), backend=BACKENDS[before])
    query.save()
    query.run(range(5, 6), backend=BACKENDS[before])
    shutil.rmtree(query.folder / "query")
    (restored,) = query.restore()
    assert restored.epoch == 4
    output = query.run(range(5, 7), 3, backend=BACKENDS[after], run_id="later")
    assert output == {key: (7, sum(range(7))) for key in KEYS}


def test_a_savepoint_has_the_operator_state(query: Query) -> None:
    query.run(range(3), processor=NotesValues())
    query.save()
    query.run(range(3, 5), processor=NotesValues())
    shutil.rmtree(query.folder / "query")
    query.restore()
    noted = query.run(range(3, 4), 1, run_id="later", processor=NotesValues())
    assert noted == {key: (2 * len(KEYS), 2) for key in KEYS}


def test_a_new_query_begins_with_a_savepoint(query: Query) -> None:
    query.run(range(3), backend=BACKENDS["rocksdb"])
    query.save()
    source = RestoreSource(str(query.saved), 2)
    from_it = replace(OFTEN, restore_from=source)
    output = replace(query, folder=query.folder / "new").run(range(1), 1, checkpoints=from_it)
    assert output == dict.fromkeys(KEYS, (4, 3))


def test_all_operators_of_a_query_get_one(query: Query) -> None:
    for name in ("totals", "others"):
        query.run(range(2), operator=name)
    written = savepoint(str(query.folder / "query"), str(query.saved))
    assert [each.operator for each in written] == ["others", "totals"]
    shutil.rmtree(query.folder / "query")
    restore(str(query.saved), str(query.folder / "query"))
    for name in ("totals", "others"):
        assert stored_totals(query.folder / "query" / name) == dict.fromkeys(KEYS, (2, 1))


def test_retention_leaves_alone_what_a_savepoint_reads(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.run(range(4))
    own = CompletedCheckpointStore(LocalObjectStore(query.store))
    copied = operator_copy.OperatorCopy.of_subtask

    def copy_slowly(copy: operator_copy.OperatorCopy, barrier: Any) -> Any:
        if barrier.subtask == 1:
            query.run(range(4, 12))
            own.retain(2)
            own.sweep_orphans(0, 2**40)
        return copied(copy, barrier)

    monkeypatch.setattr(operator_copy.OperatorCopy, "of_subtask", copy_slowly)
    query.save()
    assert stored_totals(query.saved) == dict.fromkeys(KEYS, (4, 6))
    assert open_store(str(query.store)).versions()[0].version == 3
    assert not [*query.store.glob("pins/*")]
    own.retain(2)
    assert open_store(str(query.store)).versions()[0].version == 10


def test_the_pin_of_a_killed_reader_does_not_count_for_ever(query: Query) -> None:
    query.run(range(4))
    objects = LocalObjectStore(query.store)
    pins = EpochPins(objects)
    name = pins._put(1)
    assert pins.oldest() == 1
    ahead = EpochPins(objects, now=lambda: pins.now() + PIN_SECONDS + 60)
    assert ahead.oldest() == 1, "the clock of a machine does not count"
    killed = pins.now() - PIN_SECONDS - 60
    os.utime(query.store / name, (killed, killed))
    assert pins.oldest() is None
    with pins.pinned(3):
        pass
    assert not [*query.store.glob("pins/*")]


def names_below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def test_a_target_that_has_something_is_refused(query: Query) -> None:
    query.run(range(1))
    query.save()
    before = names_below(query.folder)
    with pytest.raises(ConfigurationError, match="is not empty: it has "):
        query.save()
    assert names_below(query.folder) == before


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        savepoint(str(tmp_path / "nothing"), str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()


def test_what_is_no_operator_is_told_of_savepoints_and_not_of_progress(tmp_path: Path) -> None:
    (tmp_path / "checkpoint/commits").mkdir(parents=True)
    (tmp_path / "checkpoint/commits/0").write_text("v1\n{}")
    checkpoint, saved = str(tmp_path / "checkpoint"), str(tmp_path / "saved")
    for refused in (lambda: savepoint(checkpoint, saved), lambda: restore(checkpoint, saved)):
        with pytest.raises(NotAnOperatorError, match="nor a savepoint of one") as raised:
            refused()
        assert "progress" not in str(raised.value).lower()
    assert not (tmp_path / "saved").exists()


def test_a_store_with_epochs_is_not_restored_into(query: Query) -> None:
    query.run(range(2))
    query.save()
    before = names_below(query.store)
    with pytest.raises(ConfigurationError, match="has epochs already"):
        query.restore()
    assert names_below(query.store) == before


def test_a_store_of_another_kind_is_not_restored_into(query: Query) -> None:
    query.run(range(2))
    query.save()
    metadata = open_store(str(query.store))._history.metadata  # type: ignore[attr-defined]
    shutil.rmtree(query.store)
    CompletedCheckpointStore(LocalObjectStore(query.store)).open(
        replace(metadata, max_parallelism=16)
    )
    before = names_below(query.store)
    with pytest.raises(StoreMismatchError, match="max_parallelism"):
        query.restore()
    assert names_below(query.store) == before


@pytest.mark.parametrize(
    "target",
    [
        "root/00000000-0000-4000-8000-000000000000/totals",
        "query/others",
        "query",
        "query/totals/totals",
    ],
)
def test_a_place_that_is_not_the_store_of_the_query_is_told_of_restore_from(
    query: Query, target: str
) -> None:
    query.run(range(2))
    query.save()
    shutil.rmtree(query.folder / "query")
    with pytest.raises(
        ConfigurationError, match=r"is not where the query .*restoreFrom to .*saved"
    ):
        restore(str(query.saved), str(query.folder / target))
    assert not (query.folder / target).exists()


def test_a_query_whose_checkpoint_is_ahead_of_a_restored_store_is_refused(query: Query) -> None:
    query.run(range(6))
    query.save(epoch=3)
    shutil.rmtree(query.store)
    query.restore()
    with pytest.raises(ConfigurationError, match="epoch 3, but the query is at epoch 6"):
        query.run(range(6, 7), run_id="later")
    output = query.run(range(4, 9), run_id="later")
    assert output == {key: (9, sum(range(9))) for key in KEYS}
    output = query.run(range(11, 12), run_id="last")  # Spark skipped batches 9 and 10
    assert output == {key: (10, sum(range(9)) + 11) for key in KEYS}


def test_operators_get_one_epoch_or_none(query: Query) -> None:
    query.run(range(6))
    query.run(range(4), operator="others")
    of_query, saved = str(query.folder / "query"), query.saved
    written = savepoint(of_query, str(saved))
    assert [each.epoch for each in written] == [3, 3]
    with pytest.raises(VersionNotRetainedError, match=r"version 5 .*others is not written yet"):
        savepoint(of_query, str(query.folder / "new"), epoch=5)
    assert not (query.folder / "new").exists()
    shutil.rmtree(saved / "others")
    savepoint(f"{of_query}/others", str(saved / "others"), epoch=1)
    shutil.rmtree(of_query)
    with pytest.raises(ConfigurationError, match="no epoch in common: others has 1 to 1, totals"):
        restore(str(saved), of_query)
    assert not (query.folder / "query").exists()


def test_an_operator_that_lags_does_not_make_an_old_savepoint_of_the_others(query: Query) -> None:
    query.run(range(6))
    query.run(range(3), operator="others")
    of_query, saved = str(query.folder / "query"), query.saved
    lags = (
        r"others below .*query lags: its newest epoch is 2, and totals has epoch 5\. The newest "
        r"that all operators have is 2\. Name the store of one operator, or pass an epoch that all"
    )
    with pytest.raises(ConfigurationError, match=lags):
        savepoint(of_query, str(saved))
    assert not saved.exists()
    written = savepoint(of_query, str(saved), epoch=2)
    assert [each.epoch for each in written] == [2, 2]
    (written_one,) = savepoint(f"{of_query}/totals", str(query.folder / "one"))
    assert written_one.epoch == 5


def test_a_savepoint_whose_second_operator_fails_has_no_epoch_at_all(query: Query) -> None:
    for name in ("totals", "others"):
        query.run(range(3), operator=name)
    of_query, saved = query.folder / "query", query.saved
    damaged = max((of_query / "totals").glob("epochs/*/changelog-00001-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(CorruptObjectError):
        savepoint(str(of_query), str(saved))
    shutil.rmtree(of_query)
    with pytest.raises(CheckpointStoreError, match="holds no version yet"):
        restore(str(saved), str(of_query))
    assert not of_query.exists()


def has_epoch(store: Path) -> bool:
    return bool(open_store(str(store)).versions())


@pytest.mark.parametrize(
    ("failing", "at", "with_epoch"),
    [
        ("/barrier-", 1, set()),
        ("/barrier-", 2, set()),
        ("/barrier-", 3, set()),
        ("/barrier-", 4, {"others"}),
        ("manifests/", 1, {"others", "totals"}),
        ("manifests/", 2, {"others", "totals"}),
    ],
)
def test_only_a_failure_between_the_last_barriers_leaves_some_operators_with_the_epoch(
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    at: int,
    with_epoch: set[str],
) -> None:
    names = ("others", "totals")
    for name in names:
        query.run(range(3), operator=name)
    of_query, saved = query.folder / "query", query.saved
    put, calls = LocalObjectStore.put, 0

    def refuse(store: LocalObjectStore, name: str, data: bytes) -> None:
        nonlocal calls
        if saved in store.root.parents and failing in name:
            calls += 1
            if calls >= at:
                raise PermissionError(name)
        put(store, name, data)

    monkeypatch.setattr(LocalObjectStore, "put", refuse)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0)
    with pytest.raises(CheckpointStoreError):
        savepoint(str(of_query), str(saved))
    monkeypatch.undo()
    assert {name for name in names if has_epoch(saved / name)} == with_epoch
    for name in with_epoch:
        assert stored_totals(saved / name) == dict.fromkeys(KEYS, (3, 3))
    shutil.rmtree(of_query)
    if with_epoch == set(names):
        restore(str(saved), str(of_query))
    else:
        with pytest.raises(CheckpointStoreError, match="holds no version yet"):
            restore(str(saved), str(of_query))
        assert not of_query.exists()


def test_a_savepoint_that_nobody_may_write_is_restored(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = query.run(range(3))
    query.save()
    shutil.rmtree(query.store)
    put = LocalObjectStore.put

    def refuse(self: LocalObjectStore, name: str, data: bytes) -> None:
        if self.root == query.saved:
            raise PermissionError(name)
        put(self, name, data)

    monkeypatch.setattr(LocalObjectStore, "put", refuse)
    query.restore()
    assert stored_totals(query.store) == expected


@pytest.mark.parametrize("inside", ["query/totals/saved", "query/saved", "."])
def test_a_target_in_or_around_the_source_is_refused(query: Query, inside: str) -> None:
    query.run(range(1))
    before = names_below(query.folder)
    source = query.folder / "query" if inside == "query/saved" else query.store
    with pytest.raises(ConfigurationError, match="is not apart from"):
        savepoint(str(source), str(query.folder / inside))
    assert names_below(query.folder) == before


@pytest.mark.parametrize("at", ["read", "write"])
def test_a_savepoint_that_fails_is_no_store_of_an_epoch(
    query: Query, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    query.run(range(3))
    if at == "read":
        damaged = max(query.store.glob("epochs/*/changelog-00001-*"))
        damaged.write_bytes(damaged.read_bytes()[:-1])
    else:

        def fail(files: AttemptFiles) -> None:
            if files.attempt.subtask == 1:
                raise OSError("No space left on device")

        watch_files(monkeypatch, before=fail)
    with pytest.raises((CorruptObjectError, OSError)):
        query.save()
    monkeypatch.undo()
    assert not [*query.store.glob("pins/*")]
    with pytest.raises(CheckpointStoreError, match="holds no version yet"):
        open_store(str(query.saved)).read()
    shutil.rmtree(query.store)
    with pytest.raises(CheckpointStoreError, match="holds no version yet"):
        query.restore()


def test_databases_need_rocksdict(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run(range(5), backend=BACKENDS["rocksdb"])
    monkeypatch.setitem(sys.modules, "spark_state.rocksdb.database_restore", None)
    with pytest.raises(DatabaseReaderError, match=r"pip install 'cowstate\[rocksdb\]'"):
        query.save()


def test_the_commands_tell_what_they_wrote(
    query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    query.run(range(3))
    assert main(["savepoint", str(query.store), str(query.saved), "--epoch", "1"]) == 0
    assert f"has epoch 1 of file://{query.store}: 50 entries" in capsys.readouterr().out
    shutil.rmtree(query.store)
    assert main(["restore", str(query.saved), str(query.store)]) == 0
    assert "The last batch of the query's checkpoint must be 1" in capsys.readouterr().out
    assert main(["savepoint", str(query.store), str(query.folder / "again"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["epoch"], told["entries"]) == (1, 50)
    assert main(["restore", str(query.saved), str(query.store)]) == 2
    assert "has epochs already" in capsys.readouterr().err
    assert main(["savepoint", str(query.store), str(query.folder / "third"), "--epoch", "99"]) == 2
    assert "with --epoch, or leave it out for the newest" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["savepoint", str(query.store), str(query.folder / "third"), "--epoch", "-1"])
