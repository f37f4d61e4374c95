"""Savepoints and restores of operators work without Spark."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
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
from checkpoint_store.operators.operator_errors import (
    NoSavepointError,
)
from checkpoint_store.state_reader import open_store
from cowstate.cli.command_line import main
from spark_state import restore, savepoint
from spark_state.errors import ConfigurationError
from spark_state.savepoints import operator_copy
from spark_state.savepoints import savepoint as module
from spark_state.subtasks.epoch_request import BackendSettings, RestoreSource
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import (
    KEY_SCHEMA,
    Host,
    OpenHost,
    Totals,
    operator,
    stored_totals,
)
from tests.support.operators.watched_files import watch_files

KEYS = [f"key {number}" for number in range(50)]
BACKENDS = {"heap": BackendSettings(), "rocksdb": BackendSettings(kind="rocksdb")}
OFTEN = replace(operator(Path()).checkpoints, min_epochs_for_snapshot=2)


@pytest.fixture
def open_host(tmp_path: Path, maintenance: Maintenance) -> Iterator[OpenHost]:
    """Open hosts of stores below a folder."""
    hosts: list[Host] = []

    def open_one(root: Path = tmp_path, **changes: Any) -> Host:
        own = {name: changes.pop(name) for name in ("subtask", "run_id") if name in changes}
        spec = operator(root, key_schema_json=KEY_SCHEMA, **{"checkpoints": OFTEN, **changes})
        hosts.append(Host(spec, **own).open(maintenance))
        return hosts[-1]

    yield open_one
    for host in hosts:
        host.close()


def run(open_host: OpenHost, epochs: range, parallelism: int = 2, **changes: Any) -> Totals:
    """Run epochs with a row of each key. Return the output of the last epoch."""
    run_id = changes.pop("run_id", "run")
    hosts = [
        open_host(subtask=subtask, parallelism=parallelism, run_id=run_id, **changes)
        for subtask in range(parallelism)
    ]
    output: Totals = {}
    for epoch in epochs:
        for host in hosts:
            output |= host.epoch(epoch, [(key, epoch) for key in KEYS])
            host.finish_maintenance()
    for host in hosts:
        host.close()
    return output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "query" / "totals"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slices", [1, 7])
def test_a_savepoint_is_read_where_it_was_copied_to(
    open_host: OpenHost,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    slices: int,
) -> None:
    monkeypatch.setattr(operator_copy, "ROWS_AT_ONCE", 1 + 50 * 7 // slices)
    expected = run(open_host, range(7), backend=BACKENDS[backend])
    (written,) = savepoint(str(store), str(tmp_path / "saved"))
    assert (written.epoch, written.subtasks, written.entries) == (6, 2, len(KEYS))
    shutil.rmtree(tmp_path / "query")
    shutil.move(tmp_path / "saved", tmp_path / "elsewhere")
    assert stored_totals(tmp_path / "elsewhere") == expected
    names = [path.name for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()]
    assert not [name for name in names if name.startswith(("changelog", "database", "table"))]


@pytest.mark.parametrize("before", BACKENDS)
@pytest.mark.parametrize("after", BACKENDS)
def test_a_query_goes_on_from_a_restored_store_with_any_backend(
    open_host: OpenHost, store: Path, tmp_path: Path, before: str, after: str
) -> None:
    run(open_host, range(5), backend=BACKENDS[before])
    savepoint(str(store), str(tmp_path / "saved"))
    run(open_host, range(5, 6), backend=BACKENDS[before])
    shutil.rmtree(tmp_path / "query")
    (restored,) = restore(str(tmp_path / "saved"), str(store))
    assert restored.epoch == 4
    output = run(open_host, range(5, 7), 3, backend=BACKENDS[after], run_id="later")
    assert output == {key: (7, sum(range(7))) for key in KEYS}


def test_a_new_query_begins_with_a_savepoint(
    open_host: OpenHost, store: Path, tmp_path: Path
) -> None:
    run(open_host, range(3), backend=BACKENDS["rocksdb"])
    savepoint(str(store), str(tmp_path / "saved"))
    source = RestoreSource(str(tmp_path / "saved"), 2)
    from_it = replace(OFTEN, restore_from=source)
    output = run(open_host, range(1), 1, root=tmp_path / "new", checkpoints=from_it)
    assert output == dict.fromkeys(KEYS, (4, 3))


def test_an_older_epoch_may_be_asked_for(open_host: OpenHost, store: Path, tmp_path: Path) -> None:
    run(open_host, range(5))
    savepoint(str(store), str(tmp_path / "saved"), epoch=2)
    assert stored_totals(tmp_path / "saved") == dict.fromkeys(KEYS, (3, 3))
    assert stored_totals(tmp_path / "saved") == stored_totals(store, 2)


def test_all_operators_of_a_query_get_one(open_host: OpenHost, tmp_path: Path) -> None:
    for name in ("totals", "others"):
        run(open_host, range(2), operator=name)
    written = savepoint(str(tmp_path / "query"), str(tmp_path / "saved"))
    assert [each.operator for each in written] == ["others", "totals"]
    shutil.rmtree(tmp_path / "query")
    restore(str(tmp_path / "saved"), str(tmp_path / "query"))
    for name in ("totals", "others"):
        assert stored_totals(tmp_path / "query" / name) == dict.fromkeys(KEYS, (2, 1))


def test_retention_leaves_alone_what_a_savepoint_reads(
    open_host: OpenHost, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(open_host, range(4))
    own = CompletedCheckpointStore(LocalObjectStore(store))
    copied = operator_copy.OperatorCopy.of_subtask

    def copy_slowly(copy: operator_copy.OperatorCopy, barrier: Any) -> Any:
        if barrier.subtask == 1:
            run(open_host, range(4, 12))
            own.retain(2)
            own.sweep_orphans(0, 2**40)
        return copied(copy, barrier)

    monkeypatch.setattr(operator_copy.OperatorCopy, "of_subtask", copy_slowly)
    savepoint(str(store), str(tmp_path / "saved"))
    assert stored_totals(tmp_path / "saved") == dict.fromkeys(KEYS, (4, 6))
    assert open_store(str(store)).versions()[0].version == 3
    assert not [*store.glob("pins/*")]
    own.retain(2)
    assert open_store(str(store)).versions()[0].version == 10


def test_the_pin_of_a_killed_reader_does_not_count_for_ever(
    open_host: OpenHost, store: Path
) -> None:
    run(open_host, range(4))
    objects = LocalObjectStore(store)
    pins = EpochPins(objects)
    name = pins._put(1)
    assert pins.oldest() == 1
    ahead = EpochPins(objects, now=lambda: pins.now() + PIN_SECONDS + 60)
    assert ahead.oldest() == 1, "the clock of a machine does not count"
    killed = pins.now() - PIN_SECONDS - 60
    os.utime(store / name, (killed, killed))
    assert pins.oldest() is None
    with pins.pinned(3):
        pass
    assert not [*store.glob("pins/*")]


def names_below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def test_a_target_that_has_something_is_refused(
    open_host: OpenHost, store: Path, tmp_path: Path
) -> None:
    run(open_host, range(1))
    savepoint(str(store), str(tmp_path / "saved"))
    before = names_below(tmp_path)
    with pytest.raises(ConfigurationError, match="is not empty: it has a savepoint or the store"):
        savepoint(str(store), str(tmp_path / "saved"))
    assert names_below(tmp_path) == before


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        savepoint(str(tmp_path / "nothing"), str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()


def test_what_is_no_operator_is_told_of_savepoints_and_not_of_progress(tmp_path: Path) -> None:
    (tmp_path / "checkpoint/commits").mkdir(parents=True)
    (tmp_path / "checkpoint/commits/0").write_text("v1\n{}")
    checkpoint, saved = str(tmp_path / "checkpoint"), str(tmp_path / "saved")
    for refused in (lambda: savepoint(checkpoint, saved), lambda: restore(checkpoint, saved)):
        with pytest.raises(NoSavepointError, match="nor a savepoint of one") as raised:
            refused()
        assert "progress" not in str(raised.value).lower()
    assert not (tmp_path / "saved").exists()


def test_a_store_with_epochs_is_not_restored_into(
    open_host: OpenHost, store: Path, tmp_path: Path
) -> None:
    run(open_host, range(2))
    savepoint(str(store), str(tmp_path / "saved"))
    before = names_below(store)
    with pytest.raises(ConfigurationError, match="has epochs already"):
        restore(str(tmp_path / "saved"), str(store))
    assert names_below(store) == before


def test_a_store_of_another_kind_is_not_restored_into(
    open_host: OpenHost, store: Path, tmp_path: Path
) -> None:
    run(open_host, range(2))
    savepoint(str(store), str(tmp_path / "saved"))
    metadata = open_store(str(store))._history.metadata  # type: ignore[attr-defined]
    shutil.rmtree(store)
    CompletedCheckpointStore(LocalObjectStore(store)).open(replace(metadata, max_parallelism=16))
    before = names_below(store)
    with pytest.raises(StoreMismatchError, match="max_parallelism"):
        restore(str(tmp_path / "saved"), str(store))
    assert names_below(store) == before


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
    open_host: OpenHost, store: Path, tmp_path: Path, target: str
) -> None:
    run(open_host, range(2))
    savepoint(str(store), str(tmp_path / "saved"))
    shutil.rmtree(tmp_path / "query")
    with pytest.raises(
        ConfigurationError, match=r"is not where the query .*restoreFrom to .*saved"
    ):
        restore(str(tmp_path / "saved"), str(tmp_path / target))
    assert not (tmp_path / target).exists()


def test_a_query_whose_checkpoint_is_ahead_of_a_restored_store_is_refused(
    open_host: OpenHost, store: Path, tmp_path: Path
) -> None:
    run(open_host, range(6))
    savepoint(str(store), str(tmp_path / "saved"), epoch=3)
    shutil.rmtree(store)
    restore(str(tmp_path / "saved"), str(store))
    with pytest.raises(ConfigurationError, match="epoch 3, but the query is at epoch 6"):
        run(open_host, range(6, 7), run_id="later")
    output = run(open_host, range(4, 9), run_id="later")
    assert output == {key: (9, sum(range(9))) for key in KEYS}
    output = run(open_host, range(11, 12), run_id="last")  # Spark skipped batches 9 and 10
    assert output == {key: (10, sum(range(9)) + 11) for key in KEYS}


def test_operators_get_one_epoch_or_none(open_host: OpenHost, tmp_path: Path) -> None:
    run(open_host, range(6))
    run(open_host, range(4), operator="others")
    of_query, saved = str(tmp_path / "query"), tmp_path / "saved"
    written = savepoint(of_query, str(saved))
    assert [each.epoch for each in written] == [3, 3]
    with pytest.raises(VersionNotRetainedError, match=r"version 5 .*others is not written yet"):
        savepoint(of_query, str(tmp_path / "new"), epoch=5)
    assert not (tmp_path / "new").exists()
    shutil.rmtree(saved / "others")
    savepoint(f"{of_query}/others", str(saved / "others"), epoch=1)
    shutil.rmtree(of_query)
    with pytest.raises(ConfigurationError, match="no epoch in common: others has 1 to 1, totals"):
        restore(str(saved), of_query)
    assert not (tmp_path / "query").exists()


def test_an_operator_that_lags_does_not_make_an_old_savepoint_of_the_others(
    open_host: OpenHost, tmp_path: Path
) -> None:
    run(open_host, range(6))
    run(open_host, range(3), operator="others")
    of_query, saved = str(tmp_path / "query"), tmp_path / "saved"
    lags = (
        r"others below .*query lags: its newest epoch is 2, and totals has epoch 5\. The newest "
        r"that all operators have is 2\. Name the store of one operator, or pass an epoch that all"
    )
    with pytest.raises(ConfigurationError, match=lags):
        savepoint(of_query, str(saved))
    assert not saved.exists()
    written = savepoint(of_query, str(saved), epoch=2)
    assert [each.epoch for each in written] == [2, 2]
    (written_one,) = savepoint(f"{of_query}/totals", str(tmp_path / "one"))
    assert written_one.epoch == 5


def test_a_savepoint_whose_second_operator_fails_has_no_epoch_at_all(
    open_host: OpenHost, tmp_path: Path
) -> None:
    for name in ("totals", "others"):
        run(open_host, range(3), operator=name)
    of_query, saved = tmp_path / "query", tmp_path / "saved"
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
    open_host: OpenHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    at: int,
    with_epoch: set[str],
) -> None:
    names = ("others", "totals")
    for name in names:
        run(open_host, range(3), operator=name)
    of_query, saved = tmp_path / "query", tmp_path / "saved"
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
    open_host: OpenHost, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(open_host, range(3))
    savepoint(str(store), str(tmp_path / "saved"))
    shutil.rmtree(store)
    put = LocalObjectStore.put

    def refuse(self: LocalObjectStore, name: str, data: bytes) -> None:
        if self.root == tmp_path / "saved":
            raise PermissionError(name)
        put(self, name, data)

    monkeypatch.setattr(LocalObjectStore, "put", refuse)
    restore(str(tmp_path / "saved"), str(store))
    assert stored_totals(store) == expected


@pytest.mark.parametrize("inside", ["query/totals/saved", "query/saved", "."])
def test_a_target_in_or_around_the_source_is_refused(
    open_host: OpenHost, store: Path, tmp_path: Path, inside: str
) -> None:
    run(open_host, range(1))
    before = names_below(tmp_path)
    source = tmp_path / "query" if inside == "query/saved" else store
    with pytest.raises(ConfigurationError, match="is not apart from"):
        savepoint(str(source), str(tmp_path / inside))
    assert names_below(tmp_path) == before


@pytest.mark.parametrize("at", ["read", "write"])
def test_a_savepoint_that_fails_is_no_store_of_an_epoch(
    open_host: OpenHost, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run(open_host, range(3))
    if at == "read":
        damaged = max(store.glob("epochs/*/changelog-00001-*"))
        damaged.write_bytes(damaged.read_bytes()[:-1])
    else:

        def fail(files: AttemptFiles) -> None:
            if files.attempt.subtask == 1:
                raise OSError("No space left on device")

        watch_files(monkeypatch, before=fail)
    with pytest.raises((CorruptObjectError, OSError)):
        savepoint(str(store), str(tmp_path / "saved"))
    monkeypatch.undo()
    assert not [*store.glob("pins/*")]
    with pytest.raises(CheckpointStoreError, match="holds no version yet"):
        open_store(str(tmp_path / "saved")).read()
    shutil.rmtree(store)
    with pytest.raises(CheckpointStoreError, match="holds no version yet"):
        restore(str(tmp_path / "saved"), str(store))


def test_databases_need_rocksdict(
    open_host: OpenHost, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(open_host, range(5), backend=BACKENDS["rocksdb"])
    monkeypatch.setitem(sys.modules, "spark_state.rocksdb.database_restore", None)
    with pytest.raises(DatabaseReaderError, match=r"pip install 'cowstate\[rocksdb\]'"):
        savepoint(str(store), str(tmp_path / "saved"))


def test_the_commands_tell_what_they_wrote(
    open_host: OpenHost, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(open_host, range(3))
    assert main(["savepoint", str(store), str(tmp_path / "saved"), "--epoch", "1"]) == 0
    assert f"has epoch 1 of file://{store}: 50 entries" in capsys.readouterr().out
    shutil.rmtree(store)
    assert main(["restore", str(tmp_path / "saved"), str(store)]) == 0
    assert "The last batch of the query's checkpoint must be 1" in capsys.readouterr().out
    assert main(["savepoint", str(store), str(tmp_path / "again"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["epoch"], told["entries"]) == (1, 50)
    assert main(["restore", str(tmp_path / "saved"), str(store)]) == 2
    assert "has epochs already" in capsys.readouterr().err
    assert main(["savepoint", str(store), str(tmp_path / "third"), "--epoch", "99"]) == 2
    assert "with --epoch, or leave it out for the newest" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["savepoint", str(store), str(tmp_path / "third"), "--epoch", "-1"])
