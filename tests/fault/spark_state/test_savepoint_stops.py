"""A savepoint or a restore that stops at any point leaves a copy that is known to be incomplete.

The stores misbehave. An incomplete copy has no epoch, no command reads or restores the copy, and
the error says how to repair. A second try succeeds in an empty place, and in the same place after
the incomplete copy was deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import CheckpointStoreError, CowstateError
from checkpoint_store.objects.local_object_store import LocalObjectStore
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from spark_state import restore, savepoint
from spark_state.errors import ConfigurationError
from spark_state.savepoints import savepoint as module
from spark_state.subtasks.epoch_request import BackendSettings
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.subtasks import KEY_SCHEMA, Host, operator, stored_totals
from tests.support.stores.fake_object_store import FakeTime

pytestmark = pytest.mark.fault

ROOT = Path(__file__).resolve().parents[3]
KEYS = [f"key {number}" for number in range(30)]
OPERATORS = ("others", "totals")
EPOCHS = 4
EXPECTED = dict.fromkeys(KEYS, (EPOCHS, EPOCHS))
Copy = Callable[[str, str], object]

_KILLED = """
import os, signal, sys
from checkpoint_store.objects.local_object_store import LocalObjectStore
from spark_state import restore, savepoint

copy, source, target, at = sys.argv[1:]
calls, put = 0, LocalObjectStore.put

def put_or_die(store, name, data):
    global calls
    if str(store.root).startswith(target):
        calls += 1
        if calls == int(at):
            os.kill(os.getpid(), signal.SIGKILL)
    put(store, name, data)

LocalObjectStore.put = put_or_die
{"savepoint": savepoint, "restore": restore}[copy](source, target)
"""


def written(folder: Path, backend: str) -> Path:
    """Write the directory of a query with two operators, each of two subtasks."""
    spec_of = {
        name: operator(
            folder,
            operator=name,
            parallelism=2,
            key_schema_json=KEY_SCHEMA,
            backend=BackendSettings(kind=backend),  # type: ignore[arg-type]
            min_epochs_for_snapshot=2,
        )
        for name in OPERATORS
    }
    with Maintenance() as maintenance:
        for spec in spec_of.values():
            hosts = [Host(spec, subtask).open(maintenance) for subtask in range(2)]
            for epoch in range(EPOCHS):
                for host in hosts:
                    host.epoch(epoch, [(key, 1) for key in KEYS])
                    host.finish_maintenance()
            for host in hosts:
                host.close()
    assert bool([*folder.rglob("database-*")]) == (backend == "rocksdb")
    return folder / "query"


@pytest.fixture(params=["heap", "rocksdb"])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(tmp_path, request.param)


def is_complete(store: Path) -> bool:
    try:
        assert stored_totals(store) == EXPECTED
    except CheckpointStoreError:
        return False
    return True


def copied_at_last(copy: Copy, source: Path, target: Path) -> None:
    """Assert that a second try succeeds, at once or after deleting the copy as the error says."""
    told = refusal(copy, source, target)
    if told is not None:
        assert re.search(r"[Dd]elete (what is there|the stores of all operators)", told), told
        shutil.rmtree(target)
        copy(str(source), str(target))
    for name in OPERATORS:
        assert stored_totals(target / name) == EXPECTED


def refusal(copy: Copy, source: Path, target: Path) -> str | None:
    """Copy, and return the text of the error, or None if the copy succeeded."""
    try:
        copy(str(source), str(target))
    except ConfigurationError as error:
        return str(error)
    return None


class Stop:
    """A fault at a put below a folder, and at all later puts.

    `after`: True if the puts fail after their effect.
    """

    def __init__(self, folder: Path, at: int, after: bool) -> None:
        self.folder, self.at, self.after = folder, at, after
        self.calls = 0

    def put(self, store: LocalObjectStore, name: str, data: bytes) -> None:
        if self.folder not in (store.root, *store.root.parents):
            _put(store, name, data)
            return
        self.calls += 1
        stops = self.at and self.calls >= self.at
        if not stops or self.after:
            _put(store, name, data)
        if stops:
            raise OSError("the network is down")

    def in_place_of_put(self) -> Callable[[LocalObjectStore, str, bytes], None]:
        """Build a method that replaces `put` of stores."""
        return lambda store, name, data: self.put(store, name, data)


_put = LocalObjectStore.put


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up failed calls to stores at once, without retries."""

    def retrying(store: Any, seconds: float) -> RetryingObjectStore:
        passing = FakeTime()
        return RetryingObjectStore(store, 0, passing, passing.sleep)

    monkeypatch.setattr(module, "RetryingObjectStore", retrying)


@pytest.mark.parametrize("query", ["heap"], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "answer is lost"])
@pytest.mark.parametrize("copy", [savepoint, restore])
def test_a_copy_that_stops_at_any_write_is_not_taken_for_a_whole_one(
    query: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
    copy: Copy,
    after: bool,
) -> None:
    source, target = query, tmp_path / "saved"
    if copy is restore:
        savepoint(str(query), str(target))
        shutil.move(query, tmp_path / "away")
        source, target = target, query
    at, calls = 0, 1
    while at <= calls:
        stop = Stop(target, at, after)
        with monkeypatch.context() as patch:
            patch.setattr(LocalObjectStore, "put", stop.in_place_of_put())
            if at:
                with pytest.raises(CowstateError):
                    copy(str(source), str(target))
            else:
                copy(str(source), str(target))
                calls = stop.calls
        if at:
            if not any(is_complete(target / name) for name in OPERATORS):
                with pytest.raises(CowstateError):
                    savepoint(str(target), str(tmp_path / "third"))
        else:
            shutil.rmtree(target)
        copied_at_last(copy, source, target)
        shutil.rmtree(target)
        at += 1
    assert calls >= 10


@pytest.mark.parametrize(
    ("truncated", "is_damage"),
    [
        (("/changelog-", "/table-"), True),
        (("/barrier-", "manifests/"), True),
        (("/barrier-",), False),
        (("manifests/",), False),
    ],
)
def test_a_savepoint_of_a_store_that_truncates_is_an_error_unless_something_else_is_whole(
    query: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
    truncated: tuple[str, ...],
    is_damage: bool,
) -> None:
    get, saved = LocalObjectStore.get, tmp_path / "saved"

    def get_some(store: LocalObjectStore, name: str) -> bytes:
        data = get(store, name)
        cuts = query in store.root.parents and any(part in name for part in truncated)
        return data[: len(data) // 2] if cuts else data

    with monkeypatch.context() as patch:
        patch.setattr(LocalObjectStore, "get", get_some)
        if is_damage:
            with pytest.raises(CowstateError):
                savepoint(str(query), str(saved))
        else:
            savepoint(str(query), str(saved))
    if is_damage:
        assert not any(is_complete(saved / name) for name in OPERATORS)
        copied_at_last(savepoint, query, saved)
    assert all(stored_totals(saved / name) == EXPECTED for name in OPERATORS)
    assert not [*query.glob("*/pins/*")]


@pytest.mark.process
@pytest.mark.parametrize(
    ("copy", "at"), [(savepoint, 1), (savepoint, 5), (savepoint, 10), (restore, 4), (restore, 10)]
)
def test_a_copy_that_is_killed_is_not_taken_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: Copy, at: int
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    query = written(tmp_path, "rocksdb")
    source, target = query, tmp_path / "saved"
    if copy is restore:
        savepoint(str(query), str(target))
        shutil.move(query, tmp_path / "away")
        source, target = target, query
    name = "savepoint" if copy is savepoint else "restore"
    command = [sys.executable, "-c", _KILLED, name, str(source), str(target), str(at)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ended = subprocess.run(command, env=environment, cwd=ROOT, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert not all(is_complete(target / name) for name in OPERATORS)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert bool([*temporary.glob("cowstate-work-*/lock")]) == (copy is savepoint and at == 5)
    copied_at_last(copy, source, target)
    if copy is savepoint:
        assert not [*temporary.iterdir()]
