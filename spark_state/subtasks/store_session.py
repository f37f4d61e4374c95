"""An open store, shared by all subtasks of a host process.

Opens the store once, registers each run of the query once, finds the start of each epoch, and does
housekeeping in the background.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from checkpoint_store.damage_advice import HOW_TO_GO_BACK
from checkpoint_store.epochs.checkpoint_share import AskedKeyGroups, CheckpointShare
from checkpoint_store.epochs.completed_checkpoint import Barrier, Run
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.objects.chore import try_chore
from checkpoint_store.objects.deletion import deletion_chores, time_of_store
from checkpoint_store.objects.object_store import open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.operators.clock_markers import CLOCKS, sweep_markers
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.runs.run_errors import EpochsLostError, RunOverError
from spark_state.errors import ConfigurationError, FencedError
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.epoch_request import (
    CheckpointSettings,
    EpochRequest,
    EpochTask,
    OperatorSpec,
    RestoreSource,
)
from spark_state.subtasks.epoch_start import EpochStart
from spark_state.subtasks.maintenance import Maintenance

_EPOCHS_BETWEEN_RETENTIONS = 10
# A run lists the starts of runs once in so many epochs, and so notices another driver or a copy of
# the checkpoint.
EPOCHS_BETWEEN_LOOKS = 16
_SECONDS_BETWEEN_SWEEPS = 3600.0
_CAUSES = (
    "is spark.cowstate.store the one of the last run, and the operator's name (the processor's "
    "class, unless name= is given) the same? If these are the operator's first rows, start the "
    "query again, which sees that in Spark's logs. A foreachBatch function that was not set in "
    "Python must run an action over the whole batch every time: rows of other batches are lost to "
    "the operator. Then begin with a new checkpoint."
)


def store_metadata(request: EpochRequest) -> StoreMetadata:
    """Return the metadata for the store of a request, equal for all writers of the store."""
    spec = request.spec
    return StoreMetadata(
        store_id=store_id(request.task.query_id, spec.operator),
        operator=spec.operator,
        max_parallelism=spec.max_parallelism,
        key_schema_json=spec.key_schema_json,
    )


def store_id(query_id: str, operator: str) -> str:
    """Return the id of the store of a query's operator."""
    return str(uuid5(NAMESPACE_URL, f"cowstate:{query_id}/{operator}"))


@dataclass(frozen=True, slots=True)
class PublishedEpoch:
    """The last barrier that a subtask published. `is_completed`: True if the subtask has also tried
    to complete the epoch. The try lists the barriers of the epoch, and so notices if another
    attempt has published a barrier for the same subtask."""

    barrier: Barrier
    is_completed: bool


def _opened(url: str, settings: CheckpointSettings) -> RetryingObjectStore:
    opened = open_object_store(url, settings.store_options)
    return RetryingObjectStore(opened, settings.store_retry_seconds)


class StoreBegunAnewError(FencedError):
    """The store was deleted while its query ran. If there is a store at the URL now, it is another
    store."""


class StoreSession:
    """An open store. Thread-safe.

    Raises StoreMismatchError if the store was written for another operator, max parallelism or key
    schema.
    """

    def __init__(self, request: EpochRequest, maintenance: Maintenance) -> None:
        self._store = _opened(request.store_url, request.spec.checkpoints)
        self.checkpoints = CompletedCheckpointStore(self._store)
        self.checkpoints.open(store_metadata(request))
        self._maintenance = maintenance
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._looked_at = 0
        self._retaining = False
        self._retained_at = -_EPOCHS_BETWEEN_RETENTIONS
        self._clean_ups = 0
        self._retention, self._sweep = deletion_chores(
            "epochs", "The user that runs Spark", "store"
        )
        self._next_sweep = 0.0

    @property
    def url(self) -> str:
        """The store's URL."""
        return self._store.url

    def check_metadata(self, request: EpochRequest) -> None:
        """Raise StoreMismatchError if the metadata of the store and of the request differ."""
        self.checkpoints.check(store_metadata(request))

    def run(self, task: EpochTask) -> Run:
        """Return the registered run of a task.

        Raises FencedError if the session has seen a newer run (I9), StoreBegunAnewError if the last
        seen run is no longer in the store, and StoreOfOtherCheckpointError.
        """
        run_id, start = task.run_id, task.start
        with self._lock:
            if self._run is not None and self._run.run_id == run_id:
                return self._run
            if self._run is not None and self._run not in self.checkpoints.runs.all():
                raise StoreBegunAnewError(
                    f"{self.url} was deleted while its query ran; Spark tries the task again"
                )
            if start is not None:
                self.checkpoints.starts.check_checkpoint(start.checkpoint)
            run = self.checkpoints.runs.register(run_id)
            if self._run is not None and run < self._run:
                raise FencedError(
                    f"run {run_id} of the query is over: a newer run took over, "
                    f"{self._run.run_id}; nothing was changed. If two queries use one checkpoint "
                    "location, stop one of them"
                )
            if start is not None:
                self.checkpoints.starts.note_checkpoint(run, start.checkpoint)
            self._run = run
            self._looked_at = task.epoch
            self._retained_at = -_EPOCHS_BETWEEN_RETENTIONS
            return run

    def base_of(self, attempt: EpochAttempt, published: PublishedEpoch | None) -> EpochStart:
        """Return the start of the attempt's epoch.

        `published`: the last barrier of the calling subtask, None if the subtask has published no
        barrier. Raises PartialEpochError (I5), FencedError if a later run has begun (I9),
        OvertakenRunError, ContradictingRunsError, EpochsLostError, and ConfigurationError if the
        state of earlier epochs is missing.
        """
        spec, subtask = attempt.spec, attempt.by.subtask
        asked = AskedKeyGroups.of_subtask(spec.max_parallelism, spec.parallelism, subtask)
        if published is not None and published.barrier.run != attempt.by.run:
            published = None
        base = self._completed_before(attempt, published, asked)
        if base is not None:
            self._check_follows(base, attempt)
            return EpochStart.of(self.checkpoints, base, asked)
        self._check_may_begin(attempt, published)
        source = attempt.settings.restore_from
        if source is None:
            return EpochStart(self.checkpoints)
        return self._taken_over(source, attempt.settings, asked)

    def _completed_before(
        self, attempt: EpochAttempt, published: PublishedEpoch | None, asked: AskedKeyGroups
    ) -> CheckpointShare | None:
        """Return the newest completed checkpoint before the epoch; None if no such checkpoint
        exists."""
        run, epoch = attempt.by.run, attempt.by.epoch
        try:
            if published is None or published.barrier.epoch != epoch - 1:
                return self.checkpoints.bases.before(epoch, run, asked)
            self._look_now_and_then(run, epoch)
            own = published.barrier if published.is_completed else None
            bases, parallelism = self.checkpoints.bases, attempt.spec.parallelism
            return bases.completed_at(epoch - 1, run, parallelism, own, asked)
        except RunOverError as error:
            # Spark planned this epoch for this run, so Spark has committed the run's earlier
            # epochs. The newer run may have written the same epochs, so the next run must know the
            # newest committed epoch of this run.
            self.checkpoints.starts.note_reached(run.run_id, epoch)
            raise FencedError(str(error)) from error

    def _look_now_and_then(self, run: Run, epoch: int) -> None:
        """Raise RunOverError if a newer run has begun, even if the newer run began with a much
        earlier epoch. Looks once in EPOCHS_BETWEEN_LOOKS epochs."""
        with self._lock:
            if epoch - self._looked_at < EPOCHS_BETWEEN_LOOKS:
                return
            self._looked_at = epoch
        self.checkpoints.starts.check_newest(run)

    def _check_follows(self, base: CheckpointShare, attempt: EpochAttempt) -> None:
        """Raise an error if an epoch is missing between the base and the attempt's epoch.

        Raises ConfigurationError if the base was restored from a savepoint of any epoch but the
        preceding epoch. Raises EpochsLostError if the base of a run's first epoch is older than the
        newest epoch that the operator must have, see OperatorStart.
        """
        epoch, start = attempt.by.epoch, attempt.request.task.start
        if base.barriers[0].restored and base.epoch != epoch - 1:
            raise ConfigurationError(
                f"{self.url} was restored from a savepoint of epoch {base.epoch}, but the query is "
                f"at epoch {epoch}: the rows of the batches between would be lost. Let batch "
                f"{base.epoch} be the last one of its checkpoint, see {HOW_TO_GO_BACK}, or restore "
                f"a savepoint of epoch {epoch - 1}"
            )
        newest = None if start is None or base.run == attempt.by.run else start.newest_epoch
        if newest is not None and base.epoch < newest:
            raise EpochsLostError(self.url, newest, base.epoch)

    def _check_may_begin(self, attempt: EpochAttempt, published: PublishedEpoch | None) -> None:
        """Raise ConfigurationError unless the epoch may start without a checkpoint."""
        task, epoch = attempt.request.task, attempt.by.epoch
        had_state = published is not None and published.barrier.epoch < epoch
        never_ran = task.start is not None and task.start.may_begin_with_nothing(epoch)
        if epoch > 0 and (had_state or not (never_ran or attempt.settings.start_empty)):
            raise ConfigurationError(
                f"the query is at epoch {epoch}, but {self.url} holds no state of the "
                f"epochs before: {_CAUSES} To begin with empty state all "
                "the same, set spark.cowstate.startEmpty to true and start the query again"
            )

    def _taken_over(
        self, source: RestoreSource, settings: CheckpointSettings, asked: AskedKeyGroups
    ) -> EpochStart:
        """Return the start from another operator's state. Raises ConfigurationError if the other
        store no longer has the checkpoint."""
        other = CompletedCheckpointStore(_opened(source.url, settings))
        checkpoint = other.bases.before(source.epoch + 1, None, asked)
        if checkpoint is None or checkpoint.epoch != source.epoch:
            raise ConfigurationError(
                f"epoch {source.epoch} of {source.url}, which {self.url} was to begin with, is not "
                "there any more: start the query again, or name another epoch in "
                "spark.cowstate.restoreFrom"
            )
        return EpochStart.of(other, checkpoint, asked).taken_over()

    def complete(self, barrier: Barrier) -> None:
        """Write the manifest of the epoch if this barrier was the last barrier of the epoch."""
        self.checkpoints.complete(barrier.epoch, barrier.run, barrier.parallelism, barrier.subtask)

    def housekeep(self, spec: OperatorSpec, epoch: int) -> None:
        """Start a clean-up in the background, unless one is running or the last one started fewer
        than `_EPOCHS_BETWEEN_RETENTIONS` epochs ago."""
        with self._lock:
            if self._retaining or epoch - self._retained_at < _EPOCHS_BETWEEN_RETENTIONS:
                return
            self._retaining = True
            self._retained_at = epoch
        self._maintenance.housekeeping.submit(self.url, lambda: self._clean_up(spec))

    def _clean_up(self, spec: OperatorSpec) -> None:
        """Run the retention, and the orphan sweep if it is due. If the retention fails, the sweep
        runs all the same. No epoch waits for the clean-up."""
        try:
            number, self._clean_ups = self._clean_ups, self._clean_ups + 1
            settings = spec.checkpoints
            try_chore(self._retention, number, self.url, lambda: self._retain(settings), 0)
            if time.monotonic() >= self._next_sweep:
                try_chore(self._sweep, number, self.url, lambda: self._sweep_orphans(spec), None)
        finally:
            with self._lock:
                self._retaining = False

    def _retain(self, settings: CheckpointSettings) -> int:
        return self.checkpoints.retain(settings.min_epochs_to_retain)

    def _sweep_orphans(self, spec: OperatorSpec) -> None:
        settings, now = spec.checkpoints, time_of_store(self._store, time.time())
        # Between a file and the barrier that names the file, a writer may wait for the store.
        grace_seconds = settings.orphan_grace_seconds + settings.store_retry_seconds
        self.checkpoints.sweep_orphans(grace_seconds, now)
        url = f"{spec.store_root.rstrip('/')}/{CLOCKS}"
        sweep_markers(open_object_store(url, settings.store_options), now)
        self._next_sweep = time.monotonic() + _SECONDS_BETWEEN_SWEEPS
