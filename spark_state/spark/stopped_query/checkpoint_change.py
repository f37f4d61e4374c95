"""A change of a stopped query's checkpoint: its folder and record, and the checks before a change.

The command can undo a change with the folder <checkpoint>/<root of the kind>/<time>/:

    <record of the kind>   JSON, written before the checkpoint is changed
    files/<path>           copies of edited and removed files, from before the change
    as-left                digest of the listing of the checkpoint, after the whole change

All records have these entries, beside entries of their kind:

    last_planned_batch, last_committed_batch   of the query before the change
    edited       by path, the SHA-256 of the new content; with the last edit the change takes effect
    removed, created   paths
    attempt      of a rescale: part of the name of every file that the change has made
    between      of a rescale: by path, the texts of some files until the change takes effect
    finishing    of a rescale: by path, the texts to write after the change took effect
    store        of an adoption into the store of an operator, which moves `state` away

Only one change may be unfinished at a time, of any kind, and the newest change is undone first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from checkpoint_store.object_names import STATE_PLACE
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFile, CheckpointFiles
from spark_state.spark.provider.query_checkpoint import (
    QueryCheckpoint,
    last_batches,
    list_files,
    partitions_of_last_batch,
)

STATE = "state"
Progress = Callable[[int, int], None]
"""Called with the number of finished tasks, and the number of all tasks."""


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """A command that changes checkpoints. `noun`: the name of its changes."""

    command: str
    article: str
    noun: str
    root: str
    record: str


ADOPTION = ChangeKind("adopt", "an", "adoption", "_cowstate_adopt", "adoption.json")
RESCALE = ChangeKind("rescale", "a", "rescale", "_cowstate_rescale", "rescale.json")
_KINDS = (ADOPTION, RESCALE)


@dataclass(frozen=True, slots=True)
class ChangeFolder:
    """The folder of a change. `path`: relative to the checkpoint."""

    files: CheckpointFiles
    kind: ChangeKind
    path: str

    @classmethod
    def new(cls, files: CheckpointFiles, kind: ChangeKind) -> ChangeFolder:
        """The folder of a change that begins now. The first file in the folder creates the
        folder."""
        return cls(files, kind, f"{kind.root}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")

    @property
    def time(self) -> str:
        """The start time of the change; as text, a later time is greater."""
        return self.path.rpartition("/")[2]

    def saved(self, path: str) -> str:
        """The path of the copy of a file's former content."""
        return f"{self.path}/files/{path}"

    def back_up(self, paths: Iterable[str]) -> None:
        """Copy files that will change."""
        for path in paths:
            self.files.copy(path, self.saved(path))

    def write_record(self, content: Mapping[str, Any]) -> None:
        """Write the record, or replace the record."""
        self.files.write_text(f"{self.path}/{self.kind.record}", json.dumps(content, indent=1))

    def record(self) -> dict[str, Any] | None:
        """The record; None if the change has not changed anything yet."""
        path = f"{self.path}/{self.kind.record}"
        if not self.files.exists(path):
            return None
        content: dict[str, Any] = json.loads(self.files.read_text(path))
        return content

    def forget(self) -> None:
        """Delete the remains of killed edits, then the record, then the folder."""
        delete_unfinished(self.files, self.record() or {})
        self.files.delete(f"{self.path}/{self.kind.record}")
        self.files.delete(self.path)
        if not self.files.folders(self.kind.root):
            self.files.delete(self.kind.root)


def changes_of(files: CheckpointFiles) -> list[ChangeFolder]:
    """The folders of all changes, oldest first."""
    folders = [
        ChangeFolder(files, kind, f"{kind.root}/{name}")
        for kind in _KINDS
        for name in files.folders(kind.root)
    ]
    return sorted(folders, key=lambda folder: folder.time)


def last_change(files: CheckpointFiles, kind: ChangeKind) -> ChangeFolder:
    """The last change of a kind, to undo. Raises ConfigurationError if there is no such change, or
    if a change of another kind is later."""
    changes = changes_of(files)
    if not any(change.kind == kind for change in changes):
        raise ConfigurationError(f"{files.url} has no {kind.noun} to revert: none was applied")
    newest = changes[-1]
    if newest.kind != kind:
        raise ConfigurationError(
            f"{files.url_of(newest.path)} is later than the last {kind.noun}. Undo that first: "
            f"cowstate {newest.kind.command} --revert {files.url}"
        )
    return newest


def written_by(records: Iterable[Mapping[str, Any]]) -> Callable[[CheckpointFile], bool]:
    """A function that returns True for a file that one of these changes wrote."""
    paths: set[str] = set()
    attempts: list[str] = []
    for record in records:
        paths.update((*record["edited"], *record["created"], *record["removed"]))
        attempts += [record["attempt"]] if "attempt" in record else []

    def is_own(file: CheckpointFile) -> bool:
        return file.path in paths or any(attempt in file.name for attempt in attempts)

    return is_own


def check_finished(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> None:
    """Raise ConfigurationError unless the last change took effect, or no longer matters.

    The change took effect if its last edit is still there, or if the query has planned later
    batches. A rescale no longer matters if the query went back and planned its batch again with the
    former number.
    """
    changes = changes_of(files)
    if not changes:
        return
    newest = changes[-1]
    record = newest.record()
    if record is not None and (
        checkpoint.planned > record["last_planned_batch"]
        or took_effect(files, record)
        or _planned_anew(newest, record, checkpoint)
    ):
        return
    kind = newest.kind
    raise ConfigurationError(
        f"{files.url_of(newest.path)} belongs to {kind.article} {kind.noun} that is running or was "
        f"killed. If it is not running, undo it first: cowstate {kind.command} --revert {files.url}"
    )


def _planned_anew(
    folder: ChangeFolder, record: Mapping[str, Any], checkpoint: QueryCheckpoint
) -> bool:
    """Return True if another run of the query has written the file with the last edit of a
    rescale."""
    if folder.kind != RESCALE or not record["edited"] or checkpoint.partitions != record["from"]:
        return False
    switch = _last_edit(record)
    return folder.files.exists(switch) and not has_own_text(folder, switch, record["edited"], {})


def took_effect(files: CheckpointFiles, record: Mapping[str, Any]) -> bool:
    """Return True if the last edit of a change is there."""
    if "store" in record:
        return not files.exists(STATE)
    if not record["edited"]:
        # The change only moved the state into the checkpoint.
        return STATE_PLACE in record["removed"] and not files.exists(STATE_PLACE)
    path = _last_edit(record)
    return files.exists(path) and digest(files.read_text(path)) == record["edited"][path]


def finish_last(files: CheckpointFiles) -> None:
    """Finish the last change if the change took effect and was killed before its end."""
    changes = changes_of(files)
    record = changes[-1].record() if changes else None
    if record is not None and (
        took_effect(files, record) or _took_effect_long_ago(changes[-1], record)
    ):
        finish(changes[-1], record)


def _took_effect_long_ago(folder: ChangeFolder, record: Mapping[str, Any]) -> bool:
    """Return True if a rescale took effect, and Spark has later deleted the entry with its last
    edit."""
    if folder.kind != RESCALE or not record["edited"]:
        return False
    if folder.files.exists(_last_edit(record)):
        return False
    last = partitions_of_last_batch(folder.files)
    return last is not None and last[0] > record["last_planned_batch"] and last[1] == record["to"]


def _last_edit(record: Mapping[str, Any]) -> str:
    """The file whose edit makes the change take effect."""
    paths: list[str] = [*record["edited"]]
    return paths[-1]


def finish(folder: ChangeFolder, record: Mapping[str, Any]) -> None:
    """Make the edits that follow after a change took effect, in files that still have the change's
    `between` text. Safe to call again."""
    files = folder.files
    for path, text in record.get("finishing", {}).items():
        if files.exists(path) and files.read_text(path) == record["between"][path] != text:
            files.write_text(path, text)
    delete_unfinished(files, record)


def delete_unfinished(files: CheckpointFiles, record: Mapping[str, Any]) -> None:
    """Delete the remains of killed commands beside the files that a change edits."""
    for path in record.get("edited", {}):
        files.delete_unfinished(path)


def last_batches_are_equal(files: CheckpointFiles) -> bool:
    """Return True if the last planned batch is committed."""
    planned, committed = last_batches(files)
    return planned == committed


def check_unchanged(
    checkpoint: QueryCheckpoint,
    folder: ChangeFolder,
    is_own: Callable[[CheckpointFile], bool] = lambda file: False,
) -> None:
    """Raise ConfigurationError if the query has run since the checkpoint was read. `is_own`:
    returns True for files that the change itself has written since then."""
    files = folder.files
    listed = tuple(file for file in list_files(files) if not is_own(file))
    if listed != checkpoint.files:
        raise ConfigurationError(
            f"{files.url} changed during the {folder.kind.noun}: the query is running. Nothing "
            "was changed; stop the query and run the command again"
        )


def check_not_run_since(
    checkpoint: QueryCheckpoint, record: Mapping[str, Any], otherwise: str
) -> None:
    """Raise ConfigurationError with the message `otherwise` if the query has run batches since a
    change."""
    then = record["last_committed_batch"]
    now = -1 if checkpoint.committed is None else checkpoint.committed
    if checkpoint.planned > record["last_planned_batch"] or now > (-1 if then is None else then):
        raise ConfigurationError(otherwise)


def put_back_edited(
    folder: ChangeFolder, edited: Iterable[str], created: Collection[str] = ()
) -> None:
    """Put back edited files, the last edit first, and delete created files. Safe to call again."""
    files = folder.files
    for path in reversed([*edited]):
        if path in created:
            files.delete(path)
            continue
        text = files.read_text(folder.saved(path))
        if files.read_text(path) != text:
            files.write_text(path, text)


def check_edited(
    folder: ChangeFolder, edited: Mapping[str, str], between: Mapping[str, str]
) -> None:
    """Raise ConfigurationError if an edited file was changed again, and not by the change.
    `between`: texts of some files until the change takes effect."""
    files = folder.files
    for path in edited:
        if not has_own_text(folder, path, edited, between):
            raise ConfigurationError(
                f"{files.url_of(path)} was changed after {folder.path}, and not by "
                f"{folder.kind.command}. Its former content is in "
                f"{files.url_of(folder.saved(path))}; put it back first"
            )


def has_own_text(
    folder: ChangeFolder, path: str, edited: Mapping[str, str], between: Mapping[str, str]
) -> bool:
    """Return True if an edited file has its text from before the change, or a text of the change.
    For the arguments see `check_edited`."""
    before = folder.files.read_text(folder.saved(path))
    allowed = {digest(before), digest(between.get(path, before)), edited[path]}
    return digest(folder.files.read_text(path)) in allowed


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
