"""The store of an operator, and all that readers, a restart and its clean-up may ask of it.

    run-a   epochs 0 to 5, a snapshot at 2; epochs 4 and 5 are rolled back
    run-b   epochs 4 to 6; of 5 one subtask came twice, 6 has no manifest: its last writer died

An answer is a plain value, so that those of a damaged store can be compared with those of the store
as it was.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from checkpoint_store.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.open_history import history_in
from checkpoint_store.row_fold import CHANGE_TYPE, COMMIT_VERSION
from checkpoint_store.state_handle import StateFileKind
from checkpoint_store.state_reader import StateReader
from tests.support.damage import (
    Answer,
    DamagedStore,
    Question,
    answer_or_error,
    read_each,
    sorted_rows,
)
from tests.support.fake_object_store import DictObjectStore
from tests.support.keyed_operator import KEYED, KeyedOperator
from tests.support.scripted_operator import restored, whole_range
from tests.support.streamed_objects import streamed

NEWEST = 6
ROLLED_BACK_TO = 4
RETAINED = 3
FIRST_MS = 1_000_000
STREAMED = (
    StructType()
    .add("key", LongType())
    .add("n", IntegerType())
    .add(CHANGE_TYPE, StringType())
    .add(COMMIT_VERSION, LongType())
)

State = dict[int, int]


def changes_in(epoch: int) -> State:
    """What the epochs of the live timeline changed: a key of each subtask."""
    return {epoch % 4: epoch, 4 + epoch % 3: 10 * epoch}


def state_at(epoch: int) -> State:
    """What the operator's state is after an epoch."""
    state: State = {}
    for number in range(epoch + 1):
        state |= changes_in(number)
    return state


def time_of(epoch: int) -> int:
    """When an epoch was completed."""
    return FIRST_MS + 1000 * epoch


@cache
def _written() -> DictObjectStore:
    objects = DictObjectStore()
    first = KeyedOperator(objects, "run-a")
    for epoch in range(6):
        objects.now = time_of(epoch) / 1000
        kind: StateFileKind = "snapshot" if epoch == 2 else "changelog"
        rolled_back = epoch >= ROLLED_BACK_TO
        first.run_epoch(epoch, {0: -1, 7: -1} if rolled_back else changes_in(epoch), kind, 9)
    second = KeyedOperator(objects, "run-b")
    for epoch in range(ROLLED_BACK_TO, NEWEST + 1):
        objects.now = time_of(epoch) / 1000
        base = second.checkpoints.latest_before(epoch)
        if epoch == 5:
            second.run_subtask(epoch, 0, {1: -2}, base, attempt=1)
        for subtask in range(2):
            second.run_subtask(epoch, subtask, changes_in(epoch), base, attempt=2)
        if epoch != NEWEST:
            assert second.checkpoints.complete(epoch, second.run, 2) is not None
    return objects


def written() -> DictObjectStore:
    """The objects of the store, a copy."""
    return _written().copy()


def needed_files(epoch: int) -> set[str]:
    """The files that a reader of the state at an epoch reads."""
    history = history_in(_written())
    history.versions()
    return {file.name for file in history.at(epoch).state}


def added_files(epoch: int) -> set[str]:
    """The files that a reader of an epoch's changes reads."""
    history = history_in(_written())
    history.versions()
    return {file.name for file in history.at(epoch).changes}


def _opened(objects: DictObjectStore) -> StateReader:
    return StateReader(history_in(objects))


def _rows(rows: pa.Table) -> State:
    return {row["key"]: row["n"] for row in rows.to_pylist()}


def _newest(store: DamagedStore) -> Answer:
    reader = _opened(store.objects)
    info = reader.info()
    return info.version, info.timestamp_ms, _rows(reader.read(info.version))


def _epoch(epoch: int, store: DamagedStore) -> Answer:
    return _rows(_opened(store.objects).read(epoch))


def _at_time(milliseconds: int, store: DamagedStore) -> Answer:
    reader = _opened(store.objects)
    epoch = reader.latest_at(milliseconds)
    return epoch, _rows(reader.read(epoch))


def _changes(start: int, end: int, store: DamagedStore) -> Answer:
    rows = _opened(store.objects).changes(start, end)
    return sorted_rows(rows.drop_columns(["_commit_timestamp"]))


def right_changes(start: int, end: int) -> list[tuple[Any, ...]]:
    """Those of the store as it was."""
    return cast(list[tuple[Any, ...]], _changes(start, end, DamagedStore(_written(), ())))


def _stream(start: int, store: DamagedStore) -> Answer:
    """The epoch at which a stream arrives from another one, and the rows on the way."""
    end, rows = streamed(store.objects, STREAMED, {"version": start, "after": "version"})
    return end["version"], rows


def _restore(epoch: int, store: DamagedStore) -> Answer:
    """What an epoch starts from: the epoch before it, and the state."""
    checkpoints = CompletedCheckpointStore(store.objects)
    checkpoints.open(KEYED)
    found = checkpoints.latest_before(epoch)
    state = restored(checkpoints, found, whole_range(3))
    return None if found is None else found.epoch, state


def _run(epoch: int, store: DamagedStore) -> Answer:
    """The newest state once a new run has run an epoch, and what was damaged is as it was."""
    run = KeyedOperator(store.objects, "run-c")
    store.objects.now = time_of(NEWEST + 1) / 1000
    run.run_epoch(epoch, changes_in(epoch))
    reader = _opened(store.restored_from_a_backup())
    version = reader.info().version
    return version, _rows(reader.read(version))


def _retain(store: DamagedStore) -> Answer:
    """The epochs that are to be kept, after retention and once what was damaged is as it was."""
    CompletedCheckpointStore(store.objects).retain(RETAINED)
    return _states(store, range(NEWEST - RETAINED, NEWEST + 1))


def _sweep(store: DamagedStore) -> Answer:
    """All epochs, after the orphan sweep and once what was damaged is as it was."""
    CompletedCheckpointStore(store.objects).sweep_orphans(0.0, time_of(NEWEST + 1) / 1000)
    return _states(store, range(NEWEST + 1))


def _states(store: DamagedStore, epochs: range) -> Answer:
    reader = _opened(store.restored_from_a_backup())
    return read_each(lambda epoch: _rows(reader.read(epoch)), epochs)


QUESTIONS: dict[str, Question] = {
    "newest": _newest,
    **{f"epoch {n}": partial(_epoch, n) for n in range(NEWEST + 1)},
    **{f"time of {n}": partial(_at_time, time_of(n)) for n in range(NEWEST + 1)},
    **{f"shortly after {n}": partial(_at_time, time_of(n) + 500) for n in (1, NEWEST - 1)},
    **{f"changes {a} to {b}": partial(_changes, a, b) for a, b in ((0, 6), (1, 3), (3, 5))},
    **{f"stream from {n}": partial(_stream, n) for n in (1, 4)},
    **{f"restore before {n}": partial(_restore, n) for n in range(1, NEWEST + 2)},
    **{f"run {n}": partial(_run, n) for n in (NEWEST + 1, NEWEST - 1)},
    "retain": _retain,
    "sweep": _sweep,
}


def answer(question: str, store: DamagedStore) -> Answer:
    """The answer, or the CheckpointStoreError that comes instead."""
    return answer_or_error(QUESTIONS[question], store)


@cache
def right_answers() -> dict[str, Answer]:
    """Those of the store as it was."""
    found = {name: answer(name, DamagedStore(_written(), ())) for name in QUESTIONS}
    assert found["newest"] == (NEWEST, time_of(NEWEST), state_at(NEWEST))
    assert found["sweep"] == {epoch: state_at(epoch) for epoch in range(NEWEST + 1)}
    assert found["run 5"] == (5, state_at(5))
    assert found["run 7"] == (7, state_at(7))
    return found
