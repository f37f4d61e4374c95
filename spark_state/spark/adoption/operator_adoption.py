"""Lets a stopped query continue on cowstate after its transformWithState ran on Spark.

    files of the store     a Spark job: each task writes the state of one subtask
    barriers, manifest     the driver: the last committed batch becomes an epoch of the store
    verified               a Spark job: compares the rows that a host would restore with the rows
                           from Spark's reader
    offset log edited      time modes only, see operator_adoption_plan
    state/ moved away      from here on, the query is a query of cowstate

Until the last step the query continues as before, or in a time mode refuses to start, and no query
reads the store. Spark's files do not change, so `revert` only has to move the files back. An
adoption that fails undoes itself; `revert` undoes a killed adoption.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from checkpoint_store import object_names
from checkpoint_store.epochs.completed_checkpoint import Barrier, StateSchema
from checkpoint_store.epochs.epoch_report import EpochReport
from checkpoint_store.epochs.operator_layout import parse_state_file
from checkpoint_store.epochs.store_metadata import StoreMetadata
from checkpoint_store.files.document import decode_handle
from checkpoint_store.objects.object_store import ObjectStore, open_object_store
from checkpoint_store.objects.retrying_object_store import RetryingObjectStore
from checkpoint_store.objects.store_outages import RETRY_SECONDS
from checkpoint_store.operators.completed_checkpoint_store import CompletedCheckpointStore
from spark_state.errors import ConfigurationError
from spark_state.spark.adoption.adoption_record import AdoptionError, AdoptionRecord
from spark_state.spark.adoption.operator_adoption_plan import (
    OPERATOR,
    OperatorAdoptionPlan,
    plan_operator_adoption,
)
from spark_state.spark.adoption.spark_states import (
    KEY_GROUP,
    SparkStates,
    checksums,
    in_format_of,
    spark_states,
)
from spark_state.spark.adoption.store_tasks import (
    WRITTEN,
    TargetStore,
    read_subtasks,
    write_subtask,
)
from spark_state.spark.input.operator_input import subtask_column
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.provider_class import ROCKSDB_CLASS
from spark_state.spark.provider.query_checkpoint import (
    QueryCheckpoint,
    last_batches,
    read_checkpoint,
)
from spark_state.spark.session.operator_configuration import (
    OperatorConfiguration,
    parse_configuration,
)
from spark_state.spark.session.session_facts import session_facts
from spark_state.spark.session.store_options import store_options
from spark_state.spark.session.worker_loading import called_in_workers
from spark_state.spark.stopped_query.checkpoint_change import (
    ADOPTION,
    STATE,
    ChangeFolder,
    Progress,
    check_edited,
    check_finished,
    check_unchanged,
    digest,
    put_back_edited,
)
from spark_state.spark.stopped_query.next_batch import (
    check_not_started,
    note_as_left,
    take_next_batch,
)
from spark_state.subtasks.epoch_request import operator_store_url
from spark_state.subtasks.store_session import store_id

_POLL_SECONDS = 0.1
_RUN_OF_ADOPTION = "adoption-"
_MOST_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class CheckedAdoption:
    """A plan that can be applied, with the states that Spark's reader found and the session's
    settings."""

    plan: OperatorAdoptionPlan
    states: SparkStates
    configuration: OperatorConfiguration
    store_url: str


@dataclass(frozen=True, slots=True)
class AppliedOperatorAdoption:
    """An applied adoption. `rows`: by state, the number of values, elements, entries or timers."""

    checked: CheckedAdoption
    folder: str
    rows: dict[str, int]


def check(spark: SparkSession, checkpoint: QueryCheckpoint, to: str) -> CheckedAdoption:
    """The adoption that `apply` would make. Changes nothing.

    Raises the errors of `plan_operator_adoption` and `spark_states`, AdoptionError if Spark cannot
    read the state, and ConfigurationError if the store already has epochs.
    """
    plan = plan_operator_adoption(checkpoint, to)
    configuration = parse_configuration(dict(spark.conf.getAll), session_facts(spark))
    try:
        with in_format_of(spark, checkpoint):
            states = spark_states(spark, plan, configuration.max_parallelism)
    except (PySparkException, Py4JJavaError) as error:
        raise AdoptionError(
            f"Spark cannot read the state of {checkpoint.url}: {_first_line(error)}"
        ) from error
    url = operator_store_url(configuration.store, checkpoint.query_id, OPERATOR)
    _check_empty(
        _object_store(
            url,
            configuration.checkpoints.store_options,
            configuration.checkpoints.store_retry_seconds,
        )
    )
    return CheckedAdoption(plan, states, configuration, url)


def apply(
    spark: SparkSession,
    files: CheckpointFiles,
    to: str,
    progress: Progress,
    *,
    force: bool = False,
) -> AppliedOperatorAdoption:
    """Let the query continue on cowstate.

    Unless `force` says that the query is stopped, first takes the next batch away from the query,
    see next_batch. Raises the errors of `check` and `take_next_batch`, ConfigurationError if
    another change is not finished, and AdoptionError. After an error the query continues as before.
    """
    checkpoint = read_checkpoint(files)
    check_finished(files, checkpoint)
    checked = check(spark, checkpoint, to)
    if not force:
        take_next_batch(files, checkpoint)
        checkpoint = read_checkpoint(files)
        checked = check(spark, checkpoint, to)
    folder = ChangeFolder.new(files, ADOPTION)
    texts = {entry.path: checked.plan.edited(entry) for entry in checked.plan.edits}
    record = AdoptionRecord(
        source=ROCKSDB_CLASS,
        target=OPERATOR,
        planned=checkpoint.planned,
        committed=checkpoint.committed,
        edited={path: digest(text) for path, text in texts.items()},
        store=checked.store_url,
    )
    try:
        folder.back_up(record.edited)
        folder.write_record(record.content())
    except BaseException:
        folder.forget()
        raise
    try:
        with in_format_of(spark, checkpoint):
            rows = _fill(spark, checked, progress)
        check_unchanged(checkpoint, folder)
        for path, text in texts.items():
            files.write_text(path, text)
        files.move(files.url_of(STATE), f"{folder.path}/{STATE}")
        note_as_left(folder)
    except BaseException:
        put_back(folder, record)
        raise
    return AppliedOperatorAdoption(checked, folder.path, rows)


def revert(folder: ChangeFolder, record: AdoptionRecord, *, force: bool = False) -> None:
    """Undo an adoption, even a killed adoption. `force` says that the query is stopped.

    Raises ConfigurationError if the query has run since the adoption or may have been started, or
    if its offset log was changed since, and not by the adoption.
    """
    files = folder.files
    planned, committed = last_batches(files)
    has_run = (planned, committed) != (record.planned, record.committed)
    if has_run and not files.exists(STATE):
        raise ConfigurationError(
            f"{files.url} has gone on to batch {planned} since {folder.path}: going back to batch "
            f"{record.planned} would lose state. Spark's own operator can begin with this state "
            'in a new checkpoint: see "Back to Spark\'s own operator" in '
            "docs/how-to/adopt-a-checkpoint.md"
        )
    check_edited(folder, record.edited, {})
    if not force:
        check_not_started(folder)
        _check_no_run(files, record)
    put_back(folder, record)


def _check_no_run(files: CheckpointFiles, record: AdoptionRecord) -> None:
    """Raise ConfigurationError if a run of the query has begun to use the store."""
    assert record.store is not None
    store = _object_store(record.store, store_options(files.settings()), RETRY_SECONDS)
    runs = CompletedCheckpointStore(store).runs.all()
    others = [run.run_id for run in runs if not run.run_id.startswith(_RUN_OF_ADOPTION)]
    if others:
        raise ConfigurationError(
            f"run {others[0]} of the query has begun to use {record.store}. Nothing was changed; "
            "stop the query, and pass --force once it is certainly stopped"
        )


def put_back(folder: ChangeFolder, record: AdoptionRecord) -> None:
    """Put Spark's files back, and delete the store. Safe to call again."""
    assert record.store is not None
    files = folder.files
    files.move_back(f"{folder.path}/{STATE}", STATE)
    put_back_edited(folder, record.edited)
    _delete_store(_object_store(record.store, store_options(files.settings()), RETRY_SECONDS))
    folder.forget()


def _object_store(url: str, options: Mapping[str, Any], retry_seconds: float) -> ObjectStore:
    return RetryingObjectStore(open_object_store(url, options), retry_seconds)


def _check_empty(store: ObjectStore) -> None:
    directories = [object_names.MANIFESTS, *store.list_directories(object_names.EPOCHS)]
    if not any(store.list(directory) for directory in directories):
        return
    raise ConfigurationError(
        f"{store.url} has epochs of this query already, so the state of Spark's operator cannot "
        "go there. If nothing needs them, move the directory away, and run the command again"
    )


def _delete_store(store: ObjectStore) -> None:
    """Delete an operator's store. First delete the manifests and barriers, which make an epoch
    count."""
    directories = [object_names.MANIFESTS, *store.list_directories(object_names.EPOCHS)]
    for directory in (*directories, object_names.RUNS, object_names.BEGUN):
        store.delete([info.name for info in store.list(directory)])
    store.delete([object_names.STORE])


def _fill(spark: SparkSession, checked: CheckedAdoption, progress: Progress) -> dict[str, int]:
    """Write the epoch and verify the epoch. Raises AdoptionError if Spark's rows and the stored
    rows differ."""
    plan, states, configuration = checked.plan, checked.states, checked.configuration
    store = _object_store(
        checked.store_url,
        configuration.checkpoints.store_options,
        configuration.checkpoints.store_retry_seconds,
    )
    checkpoints = CompletedCheckpointStore(store)
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
            raise AdoptionError(
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
    """The number of rows in the store, by state. Raises AdoptionError if the rows differ from
    Spark's."""
    expected_rows = checked.states.rows
    subtasks = spark.range(0, target.parallelism, 1, target.parallelism)
    read = called_in_workers(partial(read_subtasks, target))
    stored_rows = subtasks.mapInArrow(read, expected_rows.schema)
    names = [state.name for state in checked.states.descriptors]

    def both() -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        return checksums(expected_rows), checksums(stored_rows)

    expected, stored = _with_progress(spark, both, progress)
    for index, name in enumerate(names):
        of_spark, of_store = expected.get(index, (0, 0)), stored.get(index, (0, 0))
        if of_spark != of_store:
            raise AdoptionError(
                f"state {name!r} has {of_spark[0]:,} rows with checksum {of_spark[1]} in Spark's "
                f"store, and {of_store[0]:,} rows with checksum {of_store[1]} in {target.url}. "
                "Nothing was changed"
            )
    return {name: stored.get(index, (0, 0))[0] for index, name in enumerate(names)}


def _with_progress(spark: SparkSession, action: Callable[[], Any], progress: Progress) -> Any:
    """Run an action in another thread, and return its result. Tell `progress` about its tasks.

    Raises AdoptionError if Spark fails.
    """
    context: Any = spark.sparkContext
    group = f"cowstate-adoption-{uuid4().hex}"
    outcome: Future[Any] = Future()

    def run() -> None:
        context.setJobGroup(group, "cowstate adopt", True)
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    thread = InheritableThread(target=run)
    thread.start()
    stages: dict[int, tuple[int, int]] = {}
    try:
        while not outcome.done():
            _tell(context.statusTracker(), group, stages, progress)
            time.sleep(_POLL_SECONDS)
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        thread.join()
    try:
        return outcome.result()
    except (PySparkException, Py4JJavaError) as error:
        raise AdoptionError(f"{_first_line(error)}. Nothing was changed") from error


def _first_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.toString())
    return text.strip().split("\n")[0][:_MOST_CHARACTERS]


def _tell(tracker: Any, group: str, stages: dict[int, tuple[int, int]], progress: Progress) -> None:
    """Tell the number of finished tasks and the number of tasks known so far. `stages` remembers
    the numbers of finished stages."""
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            progress_of_stage = tracker.getStageInfo(stage)
            if progress_of_stage is not None:
                stages[stage] = progress_of_stage.numCompletedTasks, progress_of_stage.numTasks
    if stages:
        progress(sum(done for done, _ in stages.values()), sum(n for _, n in stages.values()))
