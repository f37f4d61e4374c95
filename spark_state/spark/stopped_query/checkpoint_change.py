"""Applies and undoes a change of a stopped query's checkpoint: an adoption or a rescale.

    checks               no unfinished change; the query can be changed in this way
    next batch           taken away from a driver that may still run the query, see next_batch
    claim                no other command changes the checkpoint, see change_folder
    new state            written beside the present state and read back; does not count yet
    copies and record    in the folder of the change, see change_folder
    check                the query has not run since the checkpoint was read
    edits                with the last edit the change takes effect: then the new state counts
    finishing edits      all files now look as if the query had always had the new state

Until the last edit the query continues as before the change, and from then on as after the change.
A change that fails undoes itself, or says that the undo failed. `revert` undoes a killed or an
applied change, as long as the query has not run since.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from checkpoint_store.object_names import STATE_PLACE
from spark_state.errors import ConfigurationError, CowstateError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import (
    QueryCheckpoint,
    list_files,
    read_checkpoint,
)
from spark_state.spark.stopped_query.change_folder import (
    ChangeFolder,
    changes_of,
    check_finished,
    finish,
    finish_last,
    last_change,
    restore_lost,
    took_effect,
)
from spark_state.spark.stopped_query.change_record import Changed, ChangeKind, ChangeRecord
from spark_state.spark.stopped_query.next_batch import note_as_left, take_next_batch

NEW_STATE = "converted"
"""The subfolder of a change's folder for new files that move into the checkpoint."""

Progress = Callable[[int, int], None]
"""Called with the number of finished tasks, and the number of all tasks."""

_POLL_SECONDS = 0.1

TargetT = TypeVar("TargetT", contravariant=True)
PlanT = TypeVar("PlanT")


class StateNotWrittenError(CowstateError):
    """The new state could not be written; the checkpoint is unchanged."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A plan, for reports.

    `changed`: by the name of a changed thing, its value before and after the change; `steps`: the
    steps of `--apply`; `facts`: further entries of the JSON report; `start`: how to start the
    query, and what to delete; `found`: further lines about the checkpoint.
    """

    checkpoint: QueryCheckpoint
    changed: Changed
    steps: tuple[str, ...]
    facts: Mapping[str, Any]
    start: tuple[str, ...]
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenState:
    """New state that no query uses yet, and the edits after which the query uses the new state.

    `texts`: by path, the new content of the edited files in the order of the edits; `moves`: new
    files that move from the folder NEW_STATE to their place in the checkpoint: by the path after
    the move, the URL before the move; `rows`: by name of an operator or state, the number of rows.
    """

    record: ChangeRecord
    texts: Mapping[str, str]
    rows: Mapping[str, int]
    moves: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """An applied change. `folder`: the folder with the change's backup; `changed`: the entries of
    `planned.changed`, and an entry for the next batch."""

    planned: PlannedChange
    folder: str
    changed: Changed
    written: WrittenState


@dataclass(frozen=True, slots=True)
class RevertedChange:
    """A reverted change. `record`: None if the change had not changed anything yet; `had_effect`:
    False if the change was killed before it took effect; `left`: the URL of a store in which files
    may be left."""

    url: str
    folder: str
    record: ChangeRecord | None
    had_effect: bool
    left: str | None


class Change(Protocol[TargetT, PlanT]):
    """A kind of change of a stopped query's checkpoint.

    - `plan` and `planned_change` change nothing.
    - `write_state` writes the new state, but no file that a query reads. Before the first file,
      `write_state` calls `folder.begin` with a record that says where the new state goes.
    - `delete_state` finds the new state by this record. So `delete_state` can clean up whenever the
      command was killed, and can be called again.
    """

    @property
    def kind(self) -> ChangeKind: ...

    def plan(self, files: CheckpointFiles, checkpoint: QueryCheckpoint, target: TargetT) -> PlanT:
        """The plan for a checkpoint. Raises ConfigurationError, UnsupportedOperationError and
        errors of this kind of change, with the reason and the way out."""

    def planned_change(self, plan: PlanT) -> PlannedChange:
        """The plan as reports show it."""

    def write_state(
        self, folder: ChangeFolder, plan: PlanT, begun: ChangeRecord, progress: Progress
    ) -> WrittenState:
        """Write the new state, read it back and compare. `begun`: a record to which `write_state`
        adds the entries of this kind of change. Raises errors of this kind of change."""

    def check_revert(self, folder: ChangeFolder, record: ChangeRecord, *, force: bool) -> None:
        """Raise ConfigurationError if the query has run since the change, or if somebody else has
        edited a file that the change edited. Also raise the error if the query may have been
        started, unless `force` says that the query is stopped."""

    def delete_state(self, folder: ChangeFolder, begun: ChangeRecord) -> str | None:
        """Delete the new state, but not the files in `created`. Return the URL of a store in which
        files may be left, because the store cannot be used or `is_shared` is True; otherwise
        None."""


def apply(
    change: Change[TargetT, PlanT],
    files: CheckpointFiles,
    target: TargetT,
    progress: Progress,
    *,
    force: bool = False,
) -> AppliedChange:
    """Let the query continue on `target`.

    Before the change, takes the next batch away from a driver that may still run the query, see
    next_batch. Does not take the batch if `force` says that the query is stopped.

    Raises the errors of `take_next_batch`, `plan` and `write_state`, and ConfigurationError if
    another change is not finished. After an error the query continues as before, or a note of the
    error says how to undo the change.
    """
    end_last(files)
    earlier = changes_of(files)
    checkpoint = read_checkpoint(files)
    plan = change.plan(files, checkpoint, target)
    if not force:
        take_next_batch(files, checkpoint)
        checkpoint = read_checkpoint(files)
        plan = change.plan(files, checkpoint, target)
    folder, planned = ChangeFolder.new(files, change.kind), change.planned_change(plan)
    begun = ChangeRecord(checkpoint.url, checkpoint.planned, checkpoint.committed, planned.changed)
    try:
        folder.claim(earlier)
        written = change.write_state(folder, plan, begun, progress)
        _write_record(folder, checkpoint, written.record)
    except BaseException as error:
        _undo_after(error, change, folder, is_edited=False)
        raise
    try:
        _make_edits(folder, written)
    except BaseException as error:
        _undo_after(error, change, folder, is_edited=True)
        raise
    if written.moves:
        files.delete(f"{folder.path}/{NEW_STATE}")
    first = "" if force else ", without rows"
    next_batch = (checkpoint.version, f"{checkpoint.version}{first}")
    changed = {**planned.changed, "Next batch": next_batch}
    return AppliedChange(planned, folder.path, changed, written)


def run_store_job(start: Callable[[], Any], progress: Progress) -> list[dict[str, Any]]:
    """Run a job of the JVM over the stores of a checkpoint, and return the results of its tasks.
    Raises StateNotWrittenError if a task failed. The job has always ended when this function ends,
    also if the wait is interrupted."""
    try:
        job = start()
        try:
            while not job.isDone():
                progress(job.finished(), job.total())
                time.sleep(_POLL_SECONDS)
            progress(job.finished(), job.total())
            outcomes: list[dict[str, Any]] = json.loads(job.result())
        finally:
            job.cancel()
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage()
        raise StateNotWrittenError(f"{reason}. Nothing was changed") from error
    for outcome in outcomes:
        if "error" in outcome:
            raise StateNotWrittenError(f"{outcome['error']}. Nothing was changed")
    return outcomes


def end_last(files: CheckpointFiles) -> None:
    """Finish the last change, if it took effect and was killed before its end. Raises
    ConfigurationError if the last change did not take effect and must be undone before another
    change. Call this before `read_checkpoint`, which may refuse a checkpoint with an unfinished
    change."""
    finish_last(files)
    check_finished(files)


def revert(
    change: Change[TargetT, PlanT], files: CheckpointFiles, *, force: bool = False
) -> RevertedChange:
    """Undo the last change, even a killed change. `force` says that the query is stopped.

    Raises the errors of `last_change` and `check_revert`.
    """
    folder = last_change(files, change.kind)
    restore_lost(folder)
    record, had_effect = folder.record(), False
    if record is not None:
        had_effect = took_effect(files, record)
        change.check_revert(folder, record, force=force)
    left = _undo(change, folder)
    return RevertedChange(files.url, folder.path, record, had_effect, left)


def _write_record(folder: ChangeFolder, checkpoint: QueryCheckpoint, record: ChangeRecord) -> None:
    """Copy the files that will change, and write the record. Raises ConfigurationError if somebody
    else has changed the checkpoint since the checkpoint was read."""
    folder.back_up(record.saved)
    folder.write_record(record)
    folder.check_claimed()
    check_unchanged(checkpoint, folder, record)


def _make_edits(folder: ChangeFolder, written: WrittenState) -> None:
    """Make the edits that the query sees."""
    files, record = folder.files, written.record
    for path in record.removed:
        files.delete(path)
    for path, url in written.moves.items():
        files.move(url, path)
    for path, text in written.texts.items():
        _write(folder, record, path, record.between.get(path, text))
    for path in record.moved:
        files.move(files.url_of(path), f"{folder.path}/{path}")
    finish(files, record)
    note_as_left(folder)


def _write(folder: ChangeFolder, record: ChangeRecord, path: str, text: str) -> None:
    """Write an edited file, unless it has this text already."""
    if path in record.created or folder.files.read_text(path) != text:
        folder.files.write_text(path, text)


def _undo_after(
    error: BaseException, change: Change[TargetT, PlanT], folder: ChangeFolder, *, is_edited: bool
) -> None:
    """Undo a failed change. The cause of the failure may also make the undo fail. `is_edited`:
    False if the change has not edited any file. Then only the change's own files are deleted,
    because somebody else may have edited the files of the checkpoint."""
    try:
        if not is_edited:
            folder.delete_record()
        left = _undo(change, folder)
    except Exception as second:
        reason = str(second)
        if isinstance(second, Py4JJavaError):
            reason = second.java_exception.toString()
        kind, url = folder.kind, folder.files.url
        error.add_note(
            f"The {kind.noun} could not be undone: {reason}. Until it is, the query goes on as "
            f"before the {kind.noun} or as after it, or does not start. Once {url} and its state "
            f"can be written again, undo it: cowstate {kind.command} --revert {url}"
        )
    else:
        if left is not None:
            error.add_note(left_files(left))


def left_files(store: str) -> str:
    """The advice about files that were not deleted."""
    return (
        f"Files may be left in {store}, because it could not be emptied, or because this "
        "checkpoint is a copy. Delete them if no copy of this checkpoint needs them"
    )


def _undo(change: Change[TargetT, PlanT], folder: ChangeFolder) -> str | None:
    """Put back all files. At any moment the query continues as before the change, or as after the
    change. Safe to call again. Return the result of `delete_state`."""
    files, record, begun = folder.files, folder.record(), folder.begun()
    if record is not None:
        _put_back_removed(folder, record.removed_last)
        _put_back_edited(folder, record)
    left = None if begun is None else change.delete_state(folder, begun)
    whole = record or begun
    if whole is not None:
        for path in whole.created:
            files.delete(path)
        _put_back_removed(folder, whole.removed)
    folder.forget()
    return left


def _put_back_removed(folder: ChangeFolder, paths: tuple[str, ...]) -> None:
    """Put back removed files. STATE_PLACE is the file that names the state's object store. This
    file has an effect as soon as the file exists, so the file is written in one step."""
    files = folder.files
    for path in paths:
        if path == STATE_PLACE:
            files.write_text(path, files.read_text(folder.saved(path)))
        else:
            files.copy(folder.saved(path), path)


def _put_back_edited(folder: ChangeFolder, record: ChangeRecord) -> None:
    """Put back moved folders and edited files, the last edit first."""
    files = folder.files
    for path in reversed(record.moved):
        files.move_back(f"{folder.path}/{path}", path)
    # Leave out entries that Spark has deleted, or that a query that went back has written again.
    before = {
        path: files.read_text(folder.saved(path))
        for path in record.replaced
        if files.exists(path) and folder.has_own_text(record, path)
    }
    for path, text in record.between.items():
        if path in before and files.read_text(path) != before[path]:
            _write(folder, record, path, text)
    for path in reversed([*record.edited]):
        if path in before:
            _write(folder, record, path, before[path])
        elif path in record.created:
            files.delete(path)


def check_unchanged(
    checkpoint: QueryCheckpoint, folder: ChangeFolder, record: ChangeRecord
) -> None:
    """Raise ConfigurationError if the query has changed files of the checkpoint since the
    checkpoint was read. The new files of a rescale are ignored: a rescale has already written
    these files into the checkpoint."""
    attempt = record.own.get("attempt")
    listed = tuple(
        file
        for file in list_files(folder.files)
        if attempt is None or (attempt not in file.name and file.path not in record.created)
    )
    if listed != checkpoint.files:
        raise ConfigurationError(
            f"{folder.files.url} changed during the {folder.kind.noun}: the query is running. "
            "Nothing was changed; stop the query and run the command again"
        )


def check_edited(folder: ChangeFolder, record: ChangeRecord) -> None:
    """Raise ConfigurationError if somebody else has changed a file that the change edited."""
    files = folder.files
    for path in record.replaced:
        if not folder.has_own_text(record, path):
            raise ConfigurationError(
                f"{files.url_of(path)} was changed after {folder.path}, and not by "
                f"{folder.kind.command}. Its former content is in "
                f"{files.url_of(folder.saved(path))}; put it back first"
            )
