"""Operator state continues over epochs, changing hosts, failed attempts and restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.epochs.completed_checkpoint import OperatorStateHandle
from checkpoint_store.errors import CorruptObjectError, ObjectMissingError
from checkpoint_store.objects.object_info import UNPUBLISHED
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import StateMigrationError
from tests.support.operators.operator_states import Held, NotesValues, held_by
from tests.support.operators.subtasks import Host, OpenHost
from tests.support.processors.processors import RunningTotals

STORE = "query/totals"
OBJECTS = "query/totals/epochs/*/operator-state-*"


def handle_of(folder: Path, subtask: int = 0) -> OperatorStateHandle | None:
    """Return the handle in the subtask's newest barrier."""
    newest = CompletedCheckpointStore(open_object_store(str(folder / STORE))).latest_before(1000)
    assert newest is not None
    return newest.barriers[subtask].operator_state


def test_an_attempt_that_cannot_publish_leaves_it_as_it_was(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host(NotesValues())
    host.epoch(0, [("a", 1)])
    assert host.session is not None
    with monkeypatch.context() as patched:

        def refuse(barrier: object) -> None:
            raise OSError("no store")

        checkpoints = host.session._store.checkpoints
        patched.setattr(checkpoints, "publish_barrier", refuse)
        with pytest.raises(OSError, match="no store"):
            host.epoch(1, [("a", 4)], attempt=5)
    assert held_by(host) == Held([1], [1])
    host.epoch(1, [("a", 6)], attempt=6)
    assert held_by(host) == Held([1, 6], [6])


def test_an_epoch_that_runs_again_begins_where_it_began(open_host: OpenHost) -> None:
    host = open_host(NotesValues())
    host.epoch(0, [("a", 1)])
    for attempt in (5, 6, 7):
        assert host.epoch(1, [("a", attempt)], attempt) == {"a": (1, 1)}
    assert held_by(host) == Held([1, 7], [7])
    host.epoch(2, [("a", 8)], attempt=8)
    assert held_by(host) == Held([1, 7, 8], [8])


def test_the_first_epoch_of_a_run_may_run_again_too(open_host: OpenHost) -> None:
    for subtask in range(2):
        host = open_host(NotesValues(), parallelism=2, subtask=subtask)
        host.epoch(0, [("a", 1), ("b", 2), ("c", 3), ("d", 4)])
    host = open_host(NotesValues(), run_id="run-2")
    for attempt in (3, 4):
        assert host.epoch(1, [("a", 5)], attempt) == {"a": (4, 2)}
    elsewhere = open_host(NotesValues(), run_id="run-2")
    assert elsewhere.epoch(1, [("a", 5)], attempt=5) == {"a": (4, 2)}
    assert held_by(elsewhere) == held_by(host)


def test_what_does_not_change_is_not_written_again(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host(NotesValues())
    host.epoch(0, [("a", 1)])
    written = handle_of(tmp_path)
    assert written is not None
    assert host.report is not None
    assert host.report.written_bytes >= written.length
    for epoch in range(1, 4):
        host.epoch(epoch, [("a", 0)])
        assert host.report.written_bytes == 0
    assert handle_of(tmp_path) == written
    assert len(list(tmp_path.glob(OBJECTS))) == 1
    host.epoch(4, [("a", 2)])
    assert handle_of(tmp_path) != written
    assert len(list(tmp_path.glob(OBJECTS))) == 2


def test_an_operator_without_it_writes_no_object(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host(RunningTotals())
    host.epoch(0, [("a", 1)])
    assert handle_of(tmp_path) is None
    assert list(tmp_path.glob(OBJECTS)) == []


class Other(NotesValues):
    """Declares the state "noted" of NotesValues as a list."""

    def init(self, handle: Any) -> None:
        self._noted = handle.getListOperatorState("noted", "value string")


def test_another_schema_is_refused(open_host: OpenHost) -> None:
    open_host(NotesValues()).epoch(0, [("a", 1)])
    host = open_host(Other(), run_id="run-2")
    with pytest.raises(StateMigrationError, match="operator state 'noted' is kept as split"):
        host.epoch(1, [("a", 1)])


class Deletes(RunningTotals):
    """Deletes a state of NotesValues."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        handle.deleteIfExists("noted")


def test_a_state_that_nobody_declares_stays_until_it_is_deleted(
    open_host: OpenHost, tmp_path: Path
) -> None:
    open_host(NotesValues()).epoch(0, [("a", 1)])
    open_host(RunningTotals(), run_id="run-2").epoch(1, [("a", 1)])
    assert open_host(NotesValues(), run_id="run-3").epoch(2, [("a", 2)]) == {"a": (1, 1)}
    deleting = open_host(Deletes(), run_id="run-4")
    for epoch, number in ((3, 1), (4, 0)):
        deleting.epoch(epoch, [("a", 1)])
        assert deleting.report is not None
        assert deleting.report.states_deleted == number
    assert open_host(NotesValues(), run_id="run-5").epoch(5, [("a", 2)]) == {"a": (0, 1)}


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_object_is_named(open_host: OpenHost, tmp_path: Path, is_gone: bool) -> None:
    open_host(NotesValues()).epoch(0, [("a", 1)])
    (path,) = tmp_path.glob(OBJECTS)
    if is_gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    for run_id in ("run-1", "run-2"):
        host = open_host(NotesValues(), run_id=run_id)
        error = ObjectMissingError if is_gone else CorruptObjectError
        with pytest.raises(
            error, match="from batch 0, where the operator begins with nothing"
        ) as caught:
            host.epoch(1, [("a", 1)])
        assert caught.value.name == str(path.relative_to(tmp_path / STORE))  # type: ignore[attr-defined]
        assert caught.value.epoch == 0  # type: ignore[attr-defined]


def checkpoints_of(host: Host) -> CompletedCheckpointStore:
    assert host.session is not None
    return host.session._store.checkpoints


def test_retention_keeps_what_a_retained_epoch_names(open_host: OpenHost, tmp_path: Path) -> None:
    host = open_host(NotesValues())
    for epoch in range(8):
        host.epoch(epoch, [("a", 1 if epoch < 3 else 0)])
    assert len(list(tmp_path.glob(OBJECTS))) == 3
    assert checkpoints_of(host).retain(2) > 0
    assert len(list(tmp_path.glob(OBJECTS))) == 1
    assert open_host(NotesValues()).epoch(8, [("a", 0)]) == {"a": (3, 1)}


def test_the_sweep_takes_the_objects_of_failed_attempts_only(
    open_host: OpenHost, tmp_path: Path
) -> None:
    host = open_host(NotesValues())
    host.epoch(0, [("a", 1)])
    (first,) = tmp_path.glob(OBJECTS)
    orphan = first.with_name(first.name.replace("operator-state-00000", "operator-state-00001"))
    orphan.write_bytes(b"")
    os.utime(orphan, (1, 1))
    waiting = open_host(NotesValues(), parallelism=2, subtask=1)
    swept = checkpoints_of(waiting).sweep_orphans(0.0, 1e12)
    # Meanwhile the hosts' upkeep reads the store's clock with an unpublished object, swept at once
    # here.
    published = [name for name in swept if not name.startswith(UNPUBLISHED)]
    assert published == [str(orphan.relative_to(tmp_path / STORE))]
    assert open_host(NotesValues()).epoch(1, [("a", 0)]) == {"a": (1, 1)}


def test_the_sweep_keeps_what_a_barrier_names_that_waits_for_others(
    open_host: OpenHost, tmp_path: Path
) -> None:
    waiting = open_host(NotesValues(), parallelism=2)
    waiting.epoch(0, [("a", 1), ("b", 2), ("c", 3), ("d", 4)])
    checkpoints_of(waiting).sweep_orphans(0.0, 1e12)
    assert len(list(tmp_path.glob(OBJECTS))) == 1
