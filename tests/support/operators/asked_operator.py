"""The store of an operator, and all questions of readers, restarts and clean-up to the store.

run-a   epochs 0 to 5, a snapshot at 2; epochs 4 and 5 are rolled back
run-b   epochs 4 to 6; in epoch 5 a subtask ran twice; 6 has no manifest: its last writer died
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from checkpoint_store.files.state_handle import StateFileKind
from checkpoint_store.open_history import history_in
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.state_reader import StateReader
from checkpoint_store.states.row_fold import CHANGE_TYPE, COMMIT_VERSION
from tests.support.operators.counts_operator import restored, whole_range
from tests.support.operators.keyed_operator import KEYED, KeyedOperator
from tests.support.operators.taken_back import take_back
from tests.support.stores.damage import Answer, AskedStore, DamagedStore
from tests.support.stores.fake_object_store import DictObjectStore
from tests.support.stores.streamed_objects import streamed

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


def _changes_in(epoch: int) -> State:
    """The changes of an epoch in the live timeline: one key of each subtask."""
    return {epoch % 4: epoch, 4 + epoch % 3: 10 * epoch}


def _state_at(epoch: int) -> State:
    state: State = {}
    for number in range(epoch + 1):
        state |= _changes_in(number)
    return state


def _time_of(epoch: int) -> int:
    return FIRST_MS + 1000 * epoch


def _written() -> DictObjectStore:
    objects = DictObjectStore()
    first = KeyedOperator(objects, "run-a")
    for epoch in range(6):
        objects.now = _time_of(epoch) / 1000
        kind: StateFileKind = "snapshot" if epoch == 2 else "changelog"
        rolled_back = epoch >= ROLLED_BACK_TO
        first.run_epoch(epoch, {0: -1, 7: -1} if rolled_back else _changes_in(epoch), kind, 9)
    take_back(objects, ROLLED_BACK_TO)
    second = KeyedOperator(objects, "run-b")
    for epoch in range(ROLLED_BACK_TO, NEWEST + 1):
        objects.now = _time_of(epoch) / 1000
        base = second.checkpoints.latest_before(epoch)
        if epoch == 5:
            second.run_subtask(epoch, 0, {1: -2}, base, attempt=1)
        for subtask in range(2):
            second.run_subtask(epoch, subtask, _changes_in(epoch), base, attempt=2)
        if epoch != NEWEST:
            assert second.checkpoints.complete(epoch, second.run, 2) is not None
    return objects


def _rows(rows: pa.Table) -> State:
    return {row["key"]: row["n"] for row in rows.to_pylist()}


def _stream(store: DamagedStore, start: int) -> Answer:
    """The epoch at which a stream from epoch `start` arrives, and the rows between both epochs."""
    end, rows = streamed(store.objects, STREAMED, {"version": start, "after": "version"})
    return end["version"], rows


def _restore(store: DamagedStore, epoch: int) -> Answer:
    """The base of an epoch: the number of the epoch before, and the state."""
    checkpoints = CompletedCheckpointStore(store.objects)
    checkpoints.open(KEYED)
    base = checkpoints.latest_before(epoch)
    state = restored(checkpoints, base, whole_range(3))
    return None if base is None else base.epoch, state


def _run(store: DamagedStore, epoch: int) -> Answer:
    """Let a new run run an epoch, restore the damaged objects from a backup, and return the newest
    state."""
    if epoch <= NEWEST:
        take_back(store.objects, epoch)
    run = KeyedOperator(store.objects, "run-c")
    store.objects.now = _time_of(NEWEST + 1) / 1000
    run.run_epoch(epoch, _changes_in(epoch))
    reader = StateReader(history_in(store.restored_from_a_backup()))
    version = reader.info().version
    return version, _rows(reader.read(version))


def _retain(objects: DictObjectStore) -> None:
    CompletedCheckpointStore(objects).retain(RETAINED)


def _sweep(objects: DictObjectStore) -> None:
    CompletedCheckpointStore(objects).sweep_orphans(0.0, _time_of(NEWEST + 1) / 1000)


OPERATOR = AskedStore(
    intact=_written(),
    newest=NEWEST,
    # The newest epoch has no manifest, so retention does not count the epoch.
    kept=range(NEWEST - RETAINED, NEWEST + 1),
    state_at=_state_at,
    time_of=_time_of,
    rows=_rows,
    retain=_retain,
    sweep=_sweep,
    further={"stream": _stream, "restore": _restore, "run": _run},
    questions=(
        "newest",
        *(f"version {n}" for n in range(NEWEST + 1)),
        *(f"time of {n}" for n in range(NEWEST + 1)),
        *(f"shortly after {n}" for n in (1, NEWEST - 1)),
        *(f"changes {a} to {b}" for a, b in ((0, 6), (1, 3), (3, 5))),
        *(f"stream from {n}" for n in (1, 4)),
        *(f"restore before {n}" for n in range(1, NEWEST + 2)),
        *(f"run {n}" for n in (NEWEST + 1, NEWEST - 1)),
        "retain",
        "sweep",
    ),
)
