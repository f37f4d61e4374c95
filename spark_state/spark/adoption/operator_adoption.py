"""Lets a stopped query continue on cowstate after its transformWithState ran on Spark.

    files of the store     a Spark job: each task writes the state of one subtask
    barriers, manifest     the driver: the last committed batch becomes an epoch of the store
    verified               a Spark job: compares the rows that a host would restore with the rows
                           from Spark's reader
    offset log edited      except in time mode "None", see operator_adoption_plan
    state/ moved away      into the folder of the adoption; from here on, the query is a query of
                           cowstate

Before the last step no query reads the store: a query that is started continues on Spark's
operator. If the offset log is already edited, the query refuses to start. Spark's files do not
change, so an undo moves the files back. A record with the URL of the store is written before the
first file of the store, so that an undo finds the store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from checkpoint_store import object_names
from checkpoint_store.epochs.completed_checkpoint import Barrier, StateSchema
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.operator_layout import parse_state_file
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.files.document_body import decode_handle
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from checkpoint_store.schema_text import schema_text
from spark_state.errors import ConfigurationError
from spark_state.spark.adoption.adopted_rows import (
    KEY_GROUP,
    SparkStates,
    adopted_states,
    checksums,
    in_format_of,
)
from spark_state.spark.adoption.adoption import AdoptionTarget
from spark_state.spark.adoption.operator_adoption_plan import (
    OPERATOR,
    OperatorAdoptionPlan,
    plan_operator_adoption,
)
from spark_state.spark.adoption.store_tasks import (
    WRITTEN,
    TargetStore,
    read_subtasks,
    write_subtask,
)
from spark_state.spark.input.operator_input import subtask_column
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, last_batches
from spark_state.spark.session.operator_configuration import (
    STORE_KEY,
    OperatorConfiguration,
    parse_configuration,
)
from spark_state.spark.session.session_facts import session_facts
from spark_state.spark.session.store_options import store_options
from spark_state.spark.session.worker_loading import called_in_workers
from spark_state.spark.stopped_query.change_folder import ChangeFolder
from spark_state.spark.stopped_query.change_record import ADOPTION, ChangeRecord, digest
from spark_state.spark.stopped_query.checkpoint_change import (
    PlannedChange,
    Progress,
    StateNotWrittenError,
    WrittenState,
    check_edited,
)
from spark_state.spark.stopped_query.next_batch import check_not_started
from spark_state.state_descriptor import StateDescriptor
from spark_state.subtasks.epoch_request import operator_store_url
from spark_state.subtasks.store_session import store_id

_POLL_SECONDS = 0.1
_RUN_OF_ADOPTION = "adoption-"
_MOST_CHARACTERS = 400
_STATE = "state"


@dataclass(frozen=True, slots=True)
class CheckedAdoption:
    """A plan that can be applied, with the states that Spark's reader found, the session's settings
    and the URL of the operator's store."""

    plan: OperatorAdoptionPlan
    states: SparkStates
    configuration: OperatorConfiguration
    store_url: str

    def open_store(self) -> ObjectStore:
        """Open the store of the operator."""
        settings = self.configuration.checkpoints
        store = open_object_store(self.store_url, settings.store_options)
        return RetryingObjectStore(store, settings.store_retry_seconds)


class OperatorAdoption:
    """The change from Spark's operator to cowstate's operator. A `Change`."""

    kind = ADOPTION

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def plan(
        self, files: CheckpointFiles, checkpoint: QueryCheckpoint, target: AdoptionTarget
    ) -> CheckedAdoption:
        """The plan for a checkpoint.

        Raises the errors of `plan_operator_adoption` and `adopted_states`, StateNotWrittenError if
        Spark cannot read the state, and ConfigurationError if the store already has epochs.
        """
        if target.store is not None:
            raise ConfigurationError(
                f"--store is for the state of the provider. {checkpoint.url} has state of "
                "transformWithState: name its store with --conf spark.cowstate.store=URL"
            )
        spark, plan = self._spark, plan_operator_adoption(checkpoint, target.to)
        configuration = parse_configuration(dict(spark.conf.getAll), session_facts(spark))
        try:
            with in_format_of(spark, checkpoint):
                states = adopted_states(spark, plan, configuration.max_parallelism)
        except (PySparkException, Py4JJavaError) as error:
            raise StateNotWrittenError(
                f"Spark cannot read the state of {checkpoint.url}: {_first_line(error)}"
            ) from error
        url = operator_store_url(configuration.store_root, checkpoint.query_id, OPERATOR)
        checked = CheckedAdoption(plan, states, configuration, url)
        _check_empty(checked.open_store())
        return checked

    def planned_change(self, plan: CheckedAdoption) -> PlannedChange:
        """The plan as reports show it."""
        states, configuration = plan.states.descriptors, plan.configuration
        return PlannedChange(
            checkpoint=plan.plan.checkpoint,
            changed=_changed(plan),
            steps=tuple(_steps(plan)),
            facts={
                "target": plan.store_url,
                "epoch": plan.plan.epoch,
                "time_mode": plan.plan.time_mode,
                "max_parallelism": configuration.max_parallelism,
                "states": [
                    {
                        "name": state.name,
                        "kind": state.kind,
                        "schema": schema_text(state.schema_json),
                        "expires": state.ttl_ms is not None,
                    }
                    for state in states
                ],
                "sources": plan.plan.sources,
                "edits": [entry.path for entry in plan.plan.edits],
            },
            start=(
                f"Start the query with spark_state.enable(spark), {STORE_KEY}="
                f"{configuration.store_root} and spark.cowstate.maxParallelism="
                f"{configuration.max_parallelism}.",
            ),
            found=(f"Time mode   {plan.plan.time_mode}", *map(_state_line, states)),
        )

    def write_state(
        self, folder: ChangeFolder, plan: CheckedAdoption, begun: ChangeRecord, progress: Progress
    ) -> WrittenState:
        """Write the epoch, and compare the stored rows with Spark's rows. Raises
        StateNotWrittenError if the rows differ."""
        checkpoint = plan.plan.checkpoint
        texts = {entry.path: plan.plan.edited(entry) for entry in plan.plan.edits}
        own = {"from": checkpoint.provider, "to": OPERATOR, "store": plan.store_url}
        begun = replace(begun, own=own, moved=(_STATE,))
        folder.begin(begun)
        with in_format_of(self._spark, checkpoint):
            rows = _fill(self._spark, plan, progress)
        edited = {path: digest(text) for path, text in texts.items()}
        return WrittenState(replace(begun, edited=edited), texts, rows)

    def check_revert(self, folder: ChangeFolder, record: ChangeRecord, *, force: bool) -> None:
        """Raise ConfigurationError if the query has run since the adoption, or if a file that the
        adoption edited has changed since. Without `force`, also raise the error if the query may
        have been started. `force`: True if the user is sure that the query is stopped."""
        files = folder.files
        planned, committed = last_batches(files)
        has_run = (planned, committed) != (record.planned, record.committed)
        if has_run and files.exists(f"{folder.path}/{_STATE}"):
            raise ConfigurationError(
                f"{files.url} has gone on to batch {planned} since {folder.path}: going back to "
                f"batch {record.planned} would lose state. Spark's own operator can begin with "
                'this state in a new checkpoint: see "Back to Spark\'s own operator" in '
                "docs/how-to/adopt-a-checkpoint.md"
            )
        check_edited(folder, record)
        if not force:
            check_not_started(folder)
            _check_no_run(files, record.own["store"])

    def delete_state(self, folder: ChangeFolder, begun: ChangeRecord) -> str | None:
        """Delete the operator's store. Manifests and barriers are deleted first, because without
        manifests and barriers the store has no epoch. If the checkpoint is a copy (`is_shared`),
        delete nothing and return the URL of the store."""
        store = _store_of(folder.files, begun.own["store"])
        if folder.is_shared(begun):
            return store.url
        for directory in (*_directories(store), object_names.RUNS, object_names.BEGUN):
            store.delete([info.name for info in store.list(directory)])
        store.delete([object_names.STORE])
        return None


def holds_operator(record: ChangeRecord | None) -> bool:
    """Return True for the record of an `OperatorAdoption`, False for a `ProviderAdoption`."""
    return record is not None and bool(record.moved)


def _changed(checked: CheckedAdoption) -> dict[str, tuple[str | int, str | int]]:
    plan = checked.plan
    changed: dict[str, tuple[str | int, str | int]] = {
        "Operator": ("transformWithState of Spark", f"{OPERATOR} of cowstate"),
        "State in": ("the checkpoint", checked.store_url),
        "Subtasks": (plan.operator.partitions, checked.configuration.parallelism),
    }
    if plan.edits:
        changed["Sources"] = plan.sources, f"{plan.sources + 1}, with the clock"
    return changed


def _steps(checked: CheckedAdoption) -> Iterator[str]:
    plan = checked.plan
    yield (
        f"write the state after batch {plan.epoch} as an epoch of {checked.store_url}, with "
        f"{checked.configuration.max_parallelism} key groups, and compare"
    )
    if plan.edits:
        edits = ", ".join(entry.path for entry in plan.edits)
        yield f"add a source to {edits}: the clock of time mode {plan.time_mode!r}"
    yield f"move {_STATE}/ below {ADOPTION.root}/"


def _state_line(state: StateDescriptor) -> str:
    expires = ", with a time to live" if state.ttl_ms is not None else ""
    return f"State       {state.name}: {state.kind}{expires}, {schema_text(state.schema_json)}"


def _check_no_run(files: CheckpointFiles, url: str) -> None:
    """Raise ConfigurationError if a run of the query has begun to use the store."""
    runs = CompletedCheckpointStore(_store_of(files, url)).runs.all()
    others = [run.run_id for run in runs if not run.run_id.startswith(_RUN_OF_ADOPTION)]
    if others:
        raise ConfigurationError(
            f"run {others[0]} of the query has begun to use {url}. Nothing was changed; "
            "stop the query, and pass --force once it is certainly stopped"
        )


def _store_of(files: CheckpointFiles, url: str) -> ObjectStore:
    store = open_object_store(url, store_options(files.settings()))
    return RetryingObjectStore(store, RETRY_SECONDS)


def _directories(store: ObjectStore) -> list[str]:
    """The directories with the manifests and barriers of the epochs."""
    return [object_names.MANIFESTS, *store.list_directories(object_names.EPOCHS)]


def _check_empty(store: ObjectStore) -> None:
    if not any(store.list(directory) for directory in _directories(store)):
        return
    raise ConfigurationError(
        f"{store.url} has epochs of this query already, so the state of Spark's operator cannot "
        "go there. If nothing needs them, move the directory away, and run the command again"
    )


def _fill(spark: SparkSession, checked: CheckedAdoption, progress: Progress) -> dict[str, int]:
    plan, states, configuration = checked.plan, checked.states, checked.configuration
    checkpoints = CompletedCheckpointStore(checked.open_store())
    metadata = StoreMetadata(
        store_id=store_id(plan.checkpoint.query_id, OPERATOR),
        operator=OPERATOR,
        max_parallelism=configuration.max_parallelism,
        key_schema_json=states.key_schema_json,
    )
    checkpoints.open(metadata)
    timers = [i for i, state in enumerate(states.descriptors) if state.kind == "timers"]
    target = TargetStore(
        url=checked.store_url,
        configuration=configuration,
        metadata=metadata,
        parallelism=configuration.parallelism,
        epoch=plan.epoch,
        run=checkpoints.runs.register(f"{_RUN_OF_ADOPTION}{uuid4().hex}"),
        keys=len(states.key_fields),
        file_schema=states.file_schema,
        timers=timers[0] if timers else None,
    )
    subtask = subtask_column(F.col(KEY_GROUP), configuration).cast("int")
    by_subtask = states.rows.repartitionById(configuration.parallelism, subtask)
    write = called_in_workers(partial(write_subtask, target))
    written = _with_progress(spark, by_subtask.mapInArrow(write, WRITTEN).collect, progress)
    _check_apart(checked, written)
    for barrier in _barriers(checked, target, written):
        checkpoints.publish_barrier(barrier)
    completed = checkpoints.complete(plan.epoch, target.run, configuration.parallelism)
    assert completed, "every subtask has its barrier"
    return _verified(spark, checked, target, progress)


def _check_apart(checked: CheckedAdoption, written: Sequence[Row]) -> None:
    for row in written:
        if row.merged_key is not None:
            names = ", ".join(field.name for field in checked.states.key_fields)
            raise StateNotWrittenError(
                f"Spark's store has several keys that would be the one key ({names}) = "
                f"{row.merged_key} on cowstate: they differ in the sign of a zero, or in the bits "
                "of a NaN, and Spark keeps such keys apart inside of structs. Nothing was changed. "
                "Start the query with a new checkpoint"
            )


def _barriers(
    checked: CheckedAdoption, target: TargetStore, written: Sequence[Row]
) -> list[Barrier]:
    plan = checked.plan
    schemas = tuple(
        StateSchema(state.name, state.kind, state.schema_json, state.ttl_ms, plan.epoch)
        for state in checked.states.descriptors
    )
    barriers, plan_id = [], uuid4().hex
    for subtask in range(target.parallelism):
        own = [row for row in written if row.subtask == subtask]
        handles = tuple(decode_handle(json.loads(row.handle), parse_state_file) for row in own)
        rows, size = sum(h.rows for h in handles), sum(h.length for h in handles)
        next_timer_ms = next((row.next_timer_ms for row in own), None)
        barriers.append(
            Barrier(
                barrier_id=uuid4().hex,
                epoch=plan.epoch,
                subtask=subtask,
                parallelism=target.parallelism,
                run=target.run,
                attempt=0,
                plan_id=plan_id,
                base=(),
                base_epoch=None,
                base_run=None,
                handles=handles,
                states=schemas,
                report=_report(rows, size),
                time=plan.time and replace(plan.time, next_timer_ms=next_timer_ms),
            )
        )
    return barriers


def _report(rows: int, size: int) -> EpochReport:
    """The report of a subtask whose files have these rows and bytes. No processor ran."""
    return EpochReport(
        rows_in=0,
        rows_out=0,
        changed=rows,
        removed=0,
        entries=rows,
        written_bytes=size,
        restore_ms=0,
        process_ms=0,
        write_ms=0,
        states_deleted=0,
        failed_snapshots=0,
    )


def _verified(
    spark: SparkSession, checked: CheckedAdoption, target: TargetStore, progress: Progress
) -> dict[str, int]:
    """The number of rows in the store, by state. Raises StateNotWrittenError if the rows differ
    from Spark's."""
    expected_rows = checked.states.rows
    subtasks = spark.range(0, target.parallelism, 1, target.parallelism)
    read = called_in_workers(partial(read_subtasks, target))
    stored_rows = subtasks.mapInArrow(read, expected_rows.schema)
    names = [state.name for state in checked.states.descriptors]
    expected = _with_progress(spark, partial(checksums, expected_rows), progress)
    stored = _with_progress(spark, partial(checksums, stored_rows), progress)
    for index, name in enumerate(names):
        of_spark, of_store = expected.get(index, (0, 0)), stored.get(index, (0, 0))
        if of_spark != of_store:
            raise StateNotWrittenError(
                f"state {name!r} has {of_spark[0]:,} rows with checksum {of_spark[1]} in Spark's "
                f"store, and {of_store[0]:,} rows with checksum {of_store[1]} in {target.url}. "
                "Nothing was changed"
            )
    return {name: stored.get(index, (0, 0))[0] for index, name in enumerate(names)}


def _with_progress(spark: SparkSession, action: Callable[[], Any], progress: Progress) -> Any:
    """Run an action in another thread, and return its result. Meanwhile, report the finished tasks
    of the action to `progress`.

    Raises StateNotWrittenError if Spark fails.
    """
    context: Any = spark.sparkContext
    group = f"cowstate-adoption-{uuid4().hex}"

    def run() -> Any:
        context.setJobGroup(group, "cowstate adopt", True)
        return action()

    with ThreadPoolExecutor(1) as thread:
        outcome = thread.submit(inheritable_thread_target(spark)(run))
        try:
            while not outcome.done():
                _tell(context.statusTracker(), group, progress)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            context.cancelJobGroup(group)
            raise
    try:
        return outcome.result()
    except (PySparkException, Py4JJavaError) as error:
        raise StateNotWrittenError(f"{_first_line(error)}. Nothing was changed") from error


def _first_line(error: Exception) -> str:
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(text).strip().split("\n")[0][:_MOST_CHARACTERS]


def _tell(tracker: Any, group: str, progress: Progress) -> None:
    """Report to `progress` the number of finished tasks and the number of tasks known so far."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
    stages = [stage for stage in map(tracker.getStageInfo, numbers) if stage is not None]
    if stages:
        progress(
            sum(stage.numCompletedTasks for stage in stages),
            sum(stage.numTasks for stage in stages),
        )
