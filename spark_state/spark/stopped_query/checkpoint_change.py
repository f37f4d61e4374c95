"""What a change leaves in the checkpoint, so that it can be undone; and when one may begin.

In the folder <checkpoint>/<root of the kind>/<time>/:

    <record of the kind>   JSON, written before the checkpoint is changed
    files/<path>           edited and removed files, as they were
    as-left                digest of the listing of the checkpoint, once all is changed

All records have these entries, beside others of their kind:

    last_planned_batch, last_committed_batch   of the query before the change
    edited       by path, the SHA-256 of the new content; the last edit is that which takes effect
    removed, created   paths
    attempt      of a rescale: it is in the name of every file that the change has made
    between      of a rescale: by path, the texts of some of them until it has taken effect
    finishing    of a rescale: by path, the texts that are written once it has taken effect
    store        of an adoption whose state is in the store of an operator: it has moved `state`

Only one change at a time may be unfinished, of whatever kind, and the newest is undone first.
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
"""Called with how much is done, and how much there is to do."""


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """A command that changes checkpoints. noun: what its change is called."""

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
    """The folder of a change. path: in the checkpoint."""

    files: CheckpointFiles
    kind: ChangeKind
    path: str

    @classmethod
    def new(cls, files: CheckpointFiles, kind: ChangeKind) -> ChangeFolder:
        """That of a change which begins now. It comes to be with the first file in it."""
        return cls(files, kind, f"{kind.root}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")

    @property
    def time(self) -> str:
        """When the change began; as text, later is greater."""
        return self.path.rpartition("/")[2]

    def saved(self, path: str) -> str:
        """Where the former content of a file is."""
        return f"{self.path}/files/{path}"

    def back_up(self, paths: Iterable[str]) -> None:
        """Copy files that will change."""
        for path in paths:
            self.files.copy(path, self.saved(path))

    def write_record(self, content: Mapping[str, Any]) -> None:
        """Write the record, or replace it."""
        self.files.write_text(f"{self.path}/{self.kind.record}", json.dumps(content, indent=1))

    def record(self) -> dict[str, Any] | None:
        """The record; None if the change has not changed anything yet."""
        path = f"{self.path}/{self.kind.record}"
        if not self.files.exists(path):
            return None
        content: dict[str, Any] = json.loads(self.files.read_text(path))
        return content

    def forget(self) -> None:
        """Delete the folder, the record first, and before that what killed edits have left."""
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
    """The last change of a kind, which may be undone. Raises ConfigurationError if there is none,
    or if there is a later one of another kind."""
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
    """Whether a file was written by one of these changes."""
    paths: set[str] = set()
    attempts: list[str] = []
    for record in records:
        paths.update((*record["edited"], *record["created"], *record["removed"]))
        attempts += [record["attempt"]] if "attempt" in record else []

    def is_own(file: CheckpointFile) -> bool:
        return file.path in paths or any(attempt in file.name for attempt in attempts)

    return is_own


def check_finished(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> None:
    """Raises ConfigurationError unless the last change took effect, or is past.

    It took effect if its last edit is still there, or if the query has planned later batches. A
    rescale is past if the query went back and planned its batch anew with the former number.
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
    """Whether another run of the query has written the file with the last edit of a rescale."""
    if folder.kind != RESCALE or not record["edited"] or checkpoint.partitions != record["from"]:
        return False
    switch = _last_edit(record)
    return folder.files.exists(switch) and not has_own_text(folder, switch, record["edited"], {})


def took_effect(files: CheckpointFiles, record: Mapping[str, Any]) -> bool:
    """Whether the last edit of a change is there."""
    if "store" in record:
        return not files.exists(STATE)
    if not record["edited"]:
        # It moved the state into the checkpoint, and nothing else.
        return STATE_PLACE in record["removed"] and not files.exists(STATE_PLACE)
    path = _last_edit(record)
    return files.exists(path) and digest(files.read_text(path)) == record["edited"][path]


def finish_last(files: CheckpointFiles) -> None:
    """Do what the last change does once it has taken effect, should it have been killed before."""
    changes = changes_of(files)
    record = changes[-1].record() if changes else None
    if record is not None and (
        took_effect(files, record) or _took_effect_long_ago(changes[-1], record)
    ):
        finish(changes[-1], record)


def _took_effect_long_ago(folder: ChangeFolder, record: Mapping[str, Any]) -> bool:
    """Whether a rescale took effect, and Spark has deleted the entry with its last edit since."""
    if folder.kind != RESCALE or not record["edited"]:
        return False
    if folder.files.exists(_last_edit(record)):
        return False
    last = partitions_of_last_batch(folder.files)
    return last is not None and last[0] > record["last_planned_batch"] and last[1] == record["to"]


def _last_edit(record: Mapping[str, Any]) -> str:
    """The file whose edit takes effect."""
    paths: list[str] = [*record["edited"]]
    return paths[-1]


def finish(folder: ChangeFolder, record: Mapping[str, Any]) -> None:
    """Make the edits of a change that follow when it has taken effect, in the files that are as the
    change left them. May be called again."""
    files = folder.files
    for path, text in record.get("finishing", {}).items():
        if files.exists(path) and files.read_text(path) == record["between"][path] != text:
            files.write_text(path, text)
    delete_unfinished(files, record)


def delete_unfinished(files: CheckpointFiles, record: Mapping[str, Any]) -> None:
    """Delete what killed commands have left of the files that a change edits."""
    for path in record.get("edited", {}):
        files.delete_unfinished(path)


def last_batches_are_equal(files: CheckpointFiles) -> bool:
    """Whether the last planned batch is committed."""
    planned, committed = last_batches(files)
    return planned == committed


def check_unchanged(
    checkpoint: QueryCheckpoint,
    folder: ChangeFolder,
    is_own: Callable[[CheckpointFile], bool] = lambda file: False,
) -> None:
    """Raises ConfigurationError if the query has run since the checkpoint was read. `is_own`: what
    the change itself has written since."""
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
    """Raises ConfigurationError if the query has gone on since a change. `otherwise`: what is to be
    said then."""
    then = record["last_committed_batch"]
    now = -1 if checkpoint.committed is None else checkpoint.committed
    if checkpoint.planned > record["last_planned_batch"] or now > (-1 if then is None else then):
        raise ConfigurationError(otherwise)


def put_back_edited(
    folder: ChangeFolder, edited: Iterable[str], created: Collection[str] = ()
) -> None:
    """Put back edited files, the last edit first; those that were created are deleted. May be
    called again."""
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
    """Raises ConfigurationError if somebody else has changed a file that the change edited.
    `between`: texts that some of them have while it takes effect."""
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
    """Whether a file that a change edits is as it was before, or as the change left it. Arguments
    are those of `check_edited`."""
    before = folder.files.read_text(folder.saved(path))
    allowed = {digest(before), digest(between.get(path, before)), edited[path]}
    return digest(folder.files.read_text(path)) in allowed


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
