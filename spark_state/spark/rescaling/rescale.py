"""Gives a stopped query another number of partitions, or the former number back.

    rescale.json written      from here on, `revert` knows which files to clean up
    new state written         beside the present state, which alone counts; read back and compared
    rescale.json replaced     with the texts of all edits
    files edited              up to the newest entry of the offset log: now the new state counts
    other edits               all files now look as if the query had always had the new number

Until the edit of the offset log's newest entry the query continues as before, and from then on with
the new number. A rescale that fails undoes itself, or says that the undo failed. `revert` undoes a
killed or an applied rescale, as long as the query has not run since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_state.errors import CowstateError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import (
    QueryCheckpoint,
    StatefulOperator,
    read_checkpoint,
)
from spark_state.spark.rescaling.rescale_edits import edits_of
from spark_state.spark.rescaling.rescale_plan import (
    Partitioning,
    RescalePlan,
    check_request,
    plan_rescale,
)
from spark_state.spark.rescaling.rescale_record import RescaleRecord
from spark_state.spark.stopped_query.checkpoint_change import (
    RESCALE,
    ChangeFolder,
    Progress,
    check_edited,
    check_finished,
    check_not_run_since,
    check_unchanged,
    finish,
    finish_last,
    has_own_text,
    took_effect,
    written_by,
)
from spark_state.spark.stopped_query.next_batch import (
    check_not_started,
    note_as_left,
    take_next_batch,
)
from spark_state.spark.stopped_query.store_job import run_store_job


class RescaleError(CowstateError):
    """The new state could not be written."""


@dataclass(frozen=True, slots=True)
class AppliedRescale:
    """An applied rescale. `folder`: its backup; `rows`: of all new partitions, by operator."""

    plan: RescalePlan
    folder: str
    rows: dict[int, int]


@dataclass(frozen=True, slots=True)
class RevertedRescale:
    """A reverted rescale. `record`: None if the rescale had not begun yet."""

    url: str
    folder: str
    record: RescaleRecord | None


def check(files: CheckpointFiles, checkpoint: QueryCheckpoint, target: int) -> RescalePlan:
    """The rescale that `apply` would make. Changes nothing. Raises the errors of `plan_rescale`."""
    present = check_request(checkpoint, target)
    order = _order(checkpoint, present, target, checkpoint.operators)
    partitionings = {
        (told["operator"], told["store"]): Partitioning(tuple(told["columns"]), told.get("error"))
        for told in files.partitionings(order)
    }
    return plan_rescale(checkpoint, target, partitionings)


def apply(
    spark: SparkSession, location: str, target: int, progress: Progress, *, force: bool = False
) -> AppliedRescale:
    """Let the query continue with `target` partitions.

    Unless `force` says that the query is stopped, first takes the next batch away from the query,
    see next_batch. Raises the errors of `check` and `take_next_batch`, ConfigurationError if
    another change is not finished, and RescaleError. After an error the query continues as before,
    or a note of the error says how to undo the rescale. Until the undo, the query continues with
    the former number or with the new number.
    """
    files = CheckpointFiles(spark, location)
    finish_last(files)
    checkpoint = read_checkpoint(files)
    plan = check(files, checkpoint, target)
    check_finished(files, checkpoint)
    if not force:
        take_next_batch(files, checkpoint)
        checkpoint = read_checkpoint(files)
        plan = check(files, checkpoint, target)
    folder = ChangeFolder.new(files, RESCALE)
    record = RescaleRecord.of_plan(plan)
    try:
        folder.write_record(record.content())
        partitions = _write_state(files, plan, record, progress) if plan.moves_rows else []
        check_unchanged(checkpoint, folder, written_by([record.content()]))
        edits = edits_of(plan, _ids(partitions))
        folder.back_up(edit.path for edit in edits.all)
        record = record.with_edits(edits)
        folder.write_record(record.content())
        for edit in edits.others:
            _write(files, edit.path, edit.between)
        _write(files, edits.switch.path, edits.switch.after)
        finish(folder, record.content())
        note_as_left(folder)
    except BaseException as error:
        _undo_after(error, folder, record, checkpoint.url)
        raise
    return AppliedRescale(plan, folder.path, _rows_by_operator(partitions))


def revert(folder: ChangeFolder, *, force: bool = False) -> RevertedRescale:
    """Undo the last rescale, even a killed rescale. `force` says that the query is stopped.

    Raises ConfigurationError if the query has run with the new number, or may have been started
    with the new number.
    """
    files, content = folder.files, folder.record()
    if content is None:
        folder.forget()
        return RevertedRescale(files.url, folder.path, None)
    record, checkpoint = RescaleRecord.of(content), read_checkpoint(files)
    if took_effect(files, content) or not _has_former_number(checkpoint, record):
        check_not_run_since(checkpoint, content, _after_later_batches(checkpoint, folder, record))
        there = {path: new for path, new in record.edited.items() if files.exists(path)}
        check_edited(folder, there, record.between)
    if not force:
        check_not_started(folder)
    _undo(folder, record)
    return RevertedRescale(files.url, folder.path, record)


def _has_former_number(checkpoint: QueryCheckpoint, record: RescaleRecord) -> bool:
    return checkpoint.partitions == record.partitions


def _after_later_batches(
    checkpoint: QueryCheckpoint, folder: ChangeFolder, record: RescaleRecord
) -> str:
    return (
        f"{checkpoint.url} has gone on to batch {checkpoint.planned} with {checkpoint.partitions} "
        f"partitions since {folder.path}: going back to batch {record.planned} would lose state. "
        f"Run cowstate rescale --partitions {record.partitions} instead"
    )


def _order(
    checkpoint: QueryCheckpoint,
    present: int,
    target: int,
    operators: Sequence[StatefulOperator],
    attempt: str = "",
) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint.url,
        "attempt": attempt,
        "version": checkpoint.version,
        "from": present,
        "to": target,
        "settings": checkpoint.settings,
        "stores": [
            {
                "operator": operator.number,
                "operatorName": operator.name,
                "store": store,
                "prefixColumns": operator.prefix_columns(store),
                "uniques": _former_ids(checkpoint, operator, store),
            }
            for operator in operators
            for store in operator.stores
        ],
    }


def _former_ids(
    checkpoint: QueryCheckpoint, operator: StatefulOperator, store: str
) -> list[str] | None:
    if checkpoint.state_ids is None:
        return None
    place = operator.stores.index(store)
    return [ids[place] for ids in checkpoint.state_ids[str(operator.number)]]


def _write_state(
    files: CheckpointFiles, plan: RescalePlan, record: RescaleRecord, progress: Progress
) -> list[dict[str, Any]]:
    """Write the new partitions of all stores. Raises RescaleError."""
    operators = [each.operator for each in plan.rescaled]
    order = _order(plan.checkpoint, plan.partitions, plan.target, operators, record.attempt)
    partitions = run_store_job(lambda: files.start_rescaling(order), progress, RescaleError)
    assert len(partitions) == len(order["stores"]) * plan.target
    return partitions


def _ids(partitions: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str, int], str]:
    return {
        (made["operator"], made["store"], made["partition"]): made["unique"] for made in partitions
    }


def _rows_by_operator(partitions: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for made in partitions:
        rows[made["operator"]] = rows.get(made["operator"], 0) + made["rows"]
    return rows


def _write(files: CheckpointFiles, path: str, text: str) -> None:
    if files.read_text(path) != text:
        files.write_text(path, text)


def _undo_after(
    error: BaseException, folder: ChangeFolder, record: RescaleRecord, url: str
) -> None:
    """Undo a failed rescale of the checkpoint `url`. The cause of the failure may also make the
    undo fail."""
    try:
        _undo(folder, record)
    except Exception as second:
        reason = str(second)
        if isinstance(second, Py4JJavaError):
            reason = second.java_exception.toString()
        error.add_note(
            f"The rescale could not be undone: {reason}. Until it is, the query goes on with the "
            f"former number or with the new one. Once {url} and its state can be written again, "
            f"undo it: cowstate rescale --revert {url}"
        )


def _undo(folder: ChangeFolder, record: RescaleRecord) -> None:
    """Put back all files. The order of the writes keeps a valid number at any moment: the former or
    the new number. Safe to call again."""
    files = folder.files
    # Leave out entries that Spark has deleted, or that a query that went back has written again.
    before = {
        path: files.read_text(folder.saved(path))
        for path in record.edited
        if files.exists(path) and has_own_text(folder, path, record.edited, record.between)
    }
    for path, text in record.between.items():
        if path in before and files.read_text(path) != before[path]:
            _write(files, path, text)
    for path in reversed(before):
        _write(files, path, before[path])
    _discard_state(files, record)
    folder.forget()


def _discard_state(files: CheckpointFiles, record: RescaleRecord) -> None:
    """Delete the new partitions, and the directories of the new partitions."""
    stores = [
        {"operator": number, "operatorName": "", "store": store, "prefixColumns": 0}
        for number, names in record.stores.items()
        for store in names
    ]
    order = {
        "checkpoint": files.url,
        "attempt": record.attempt,
        "version": 0,
        "from": record.partitions,
        "to": record.target,
        "settings": {},
        "stores": stores,
    }
    files.discard_rescaled(order)
    for path in record.created:
        files.delete(path)
    for number in record.stores:
        for partition in reversed(range(record.partitions, record.target)):
            directory = f"state/{number}/{partition}"
            if not files.below(directory):
                files.delete(directory)
