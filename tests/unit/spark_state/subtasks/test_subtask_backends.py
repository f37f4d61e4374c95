"""A host's databases lie in the right local directories and are removed with the host."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoint_store.files.held_folder import held
from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.errors import StateHostError
from spark_state.executor import Executor, private_directory, running_executor
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.keyed_state.backend_restore import BackendRestore
from spark_state.subtasks.epoch_request import BackendSettings, EpochRequest
from spark_state.subtasks.subtask_backends import Backend, SubtaskBackends
from tests.support.operators.subtasks import Host, operator
from tests.support.stores.stored_databases import StoredDatabases, nobody_minds

KEY_GROUPS = KeyGroupRange(0, 7)
IN_ROCKSDB = BackendSettings(kind="rocksdb")


@pytest.fixture
def request_of(tmp_path: Path) -> EpochRequest:
    spec = operator(tmp_path / "store", backend=IN_ROCKSDB)
    spark_local = tuple(str(tmp_path / name) for name in ("first", "second"))
    for folder in spark_local:
        Path(folder).mkdir()
    return replace(Host(spec).request(0, 0), local_directories=spark_local)


@pytest.fixture
def executor() -> Executor:
    running = running_executor(os.getpid())
    assert running is not None
    return running


def opened(backends: SubtaskBackends, request: EpochRequest) -> Backend:
    """Open an empty backend."""
    nothing = BackendRestore((), (), StoredDatabases().databases, nobody_minds)
    backend, rest = backends.restored(request, KEY_GROUPS, nothing)
    assert rest == ()
    return backend


def databases(folder: Path) -> list[Path]:
    return [path.parent for path in folder.rglob("CURRENT")]


def test_subtasks_take_sparks_local_directories_in_turn(
    tmp_path: Path, request_of: EpochRequest
) -> None:
    backends = SubtaskBackends()
    for subtask in range(3):
        task = replace(request_of.task, subtask=subtask)
        opened(backends, replace(request_of, task=task))
    assert len(databases(tmp_path / "first")) == 2
    assert len(databases(tmp_path / "second")) == 1
    backends.close()
    assert databases(tmp_path) == []


def test_the_configured_directory_comes_first(tmp_path: Path, request_of: EpochRequest) -> None:
    settings = replace(IN_ROCKSDB, local_directory=str(tmp_path / "first"))
    request = replace(
        request_of,
        spec=replace(request_of.spec, backend=settings),
        local_directories=(str(tmp_path / "second"),),
    )
    opened(SubtaskBackends(), request)
    assert databases(tmp_path / "second") == []
    assert len(databases(tmp_path / "first")) == 1


def test_a_host_removes_what_hosts_of_gone_executors_left(
    tmp_path: Path, request_of: EpochRequest, executor: Executor
) -> None:
    root = tmp_path / "first"
    gone = replace(executor, started=executor.started - 100)
    left = private_directory(root, gone) / "1"
    left.mkdir()
    backends = SubtaskBackends(executor)
    opened(backends, request_of)
    assert not left.exists()
    (database,) = databases(root)
    assert database.is_relative_to(private_directory(root, executor) / str(os.getpid()))
    backends.close()
    assert databases(root) == []


def copies_in(root: Path, executor: Executor) -> list[Path]:
    return sorted((private_directory(root, executor) / "copies").glob("*"))


def test_copies_of_a_subtask_that_has_ended_go_after_a_while(
    tmp_path: Path, request_of: EpochRequest, executor: Executor
) -> None:
    root, now = tmp_path / "first", [1000.0]
    backends = SubtaskBackends(executor, clock=lambda: now[0])
    opened(backends, request_of)
    (own,) = copies_in(root, executor)
    (own / "table.sst").touch()
    now[0] += 3600
    backends.remove_unused_copies(600)
    assert copies_in(root, executor) == [own]
    backends.release_copies(request_of.store_url, KEY_GROUPS)
    now[0] += 600
    backends.remove_unused_copies(600)
    assert copies_in(root, executor) == [own]
    # The query continues, and ends again.
    opened(backends, request_of)
    now[0] += 3600
    backends.remove_unused_copies(600)
    assert (own / "table.sst").exists()
    backends.release_copies(request_of.store_url, KEY_GROUPS)
    now[0] += 601
    backends.remove_unused_copies(600)
    assert copies_in(root, executor) == []
    backends.close()


def test_copies_that_a_killed_host_left_go_after_a_while(
    tmp_path: Path, request_of: EpochRequest, executor: Executor
) -> None:
    root = tmp_path / "first"
    backends = SubtaskBackends(executor)
    opened(backends, request_of)
    (own,) = copies_in(root, executor)
    old, of_another_host, young = (own.parent / name for name in ("old", "other", "young"))
    for folder in (old, of_another_host, young):
        folder.mkdir()
    with held(lambda: of_another_host):
        for folder in (own, old, of_another_host):
            os.utime(folder, (1, 1))
        backends.remove_unused_copies(600)
        assert copies_in(root, executor) == sorted([own, of_another_host, young])
    backends.close()
    assert copies_in(root, executor) == sorted([of_another_host, young])


def test_a_place_that_cannot_be_written_is_named_with_the_setting(
    tmp_path: Path, request_of: EpochRequest, executor: Executor
) -> None:
    (tmp_path / "file").touch()
    settings = replace(IN_ROCKSDB, local_directory=str(tmp_path / "file"))
    request = replace(request_of, spec=replace(request_of.spec, backend=settings))
    for backends in (SubtaskBackends(), SubtaskBackends(executor)):
        with pytest.raises(StateHostError, match=r"below .*/file: .*rocksdb\.localDirectory"):
            opened(backends, request)


def test_a_missing_library_is_named_with_the_interpreter(
    request_of: EpochRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "spark_state.rocksdb.database_restore"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StateHostError, match=r"python.* on this executor .*rocksdb"):
        opened(SubtaskBackends(), request_of)


def test_the_heap_needs_no_directory(tmp_path: Path, request_of: EpochRequest) -> None:
    request = replace(request_of, spec=replace(request_of.spec, backend=BackendSettings()))
    backends = SubtaskBackends()
    assert isinstance(opened(backends, request), HeapKeyedStateBackend)
    assert databases(tmp_path) == []
