"""The folder of a change of a stopped query's checkpoint, and the changes that killed commands have
left unfinished.

To undo a change, a command with `--revert` reads the change's folder,
<checkpoint>/<ChangeKind.root>/<time>/:

    claim                  written first, so that two commands at the same time see each other
    <noun>-begun.json      a ChangeRecord without edits: says where the new state goes
    files/<path>           copies of edited and removed files, from before the change
    <noun>.json            the whole ChangeRecord: from here on, files may be edited
    as-left                digest of the listing of the checkpoint, after the whole change

Only one change may be unfinished at a time, whatever its kind, and the newest change is undone
first. No file of the folder is replaced, so a kill never loses a record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from checkpoint_store.files.document import Source
from spark_state.errors import ConfigurationError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import last_batches, partitions_of_last_batch
from spark_state.spark.stopped_query.change_record import (
    KINDS,
    RESCALE,
    ChangeKind,
    ChangeRecord,
    digest,
)

_CLAIM = "claim"
AS_LEFT = "as-left"


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

    def claim(self, earlier: Sequence[ChangeFolder]) -> None:
        """Create the folder. `earlier`: the folders of changes that existed before the checkpoint
        was read. Raises ConfigurationError if other folders exist now, because another command
        changes the checkpoint. A command creates its own folder before it looks for others. So of
        two commands at the same time, at least one command sees the folder of the other command."""
        self.files.write_text(f"{self.path}/{_CLAIM}", "")
        expected = {self.path, *(change.path for change in earlier)}
        others = {change.path for change in changes_of(self.files)} ^ expected
        if others:
            raise ConfigurationError(
                f"another command changes {self.files.url}, in {min(others)}. Nothing was changed; "
                "run the command again when the other command has ended"
            )

    def check_claimed(self) -> None:
        """Raise ConfigurationError if another command has undone this change."""
        if not self.files.exists(f"{self.path}/{_CLAIM}"):
            raise ConfigurationError(
                f"another command has undone {self.files.url_of(self.path)} while it was running. "
                "Run the command again"
            )

    def begin(self, begun: ChangeRecord) -> None:
        """Write the record that says where the new state goes. Call before the first file of the
        new state is written."""
        self._write(self.kind.begun, begun)

    def begun(self) -> ChangeRecord | None:
        """The record that `begin` wrote; None if the change has not begun to write state."""
        return self._read(self.kind.begun)

    def write_record(self, record: ChangeRecord) -> None:
        """Write the record of the edits, before the first edit."""
        self._write(self.kind.record, record)

    def record(self) -> ChangeRecord | None:
        """The record of the edits; None if the change has not changed anything yet."""
        return self._read(self.kind.record)

    def is_shared(self, begun: ChangeRecord) -> bool:
        """Return True if the checkpoint was copied or moved after the change began. The new state
        in an object store may then be the state of another copy, whose query has gone on."""
        return begun.checkpoint != self.files.url

    @property
    def is_done(self) -> bool:
        """True after the end of the whole change."""
        return self.files.exists(f"{self.path}/{AS_LEFT}")

    def delete_record(self) -> None:
        """Delete the record of the edits, because no edit was made, or all edits are undone."""
        self.files.delete(f"{self.path}/{self.kind.record}")

    def _write(self, name: str, record: ChangeRecord) -> None:
        self.files.write_text(f"{self.path}/{name}", json.dumps(record.content(), indent=1))

    def _read(self, name: str) -> ChangeRecord | None:
        path = f"{self.path}/{name}"
        if not self.files.exists(path):
            return None
        content = json.loads(self.files.read_text(path))
        return ChangeRecord.of(content, Source(self.files.url, path))

    def has_own_text(self, record: ChangeRecord, path: str) -> bool:
        """Return True if an edited file has its text from before the change, or a text of the
        change."""
        before = self.files.read_text(self.saved(path))
        allowed = {digest(before), digest(record.between.get(path, before)), record.edited[path]}
        return digest(self.files.read_text(path)) in allowed

    def forget(self) -> None:
        """Delete the remains of killed edits, then the records, then the folder."""
        record = self.record()
        if record is not None:
            delete_unfinished(self.files, (*record.edited, *record.removed_last))
        self.delete_record()
        self.files.delete(f"{self.path}/{self.kind.begun}")
        self.files.delete(self.path)
        if not self.files.folders(self.kind.root):
            self.files.delete(self.kind.root)


def changes_of(files: CheckpointFiles) -> list[ChangeFolder]:
    """The folders of all changes, oldest first."""
    folders = [
        ChangeFolder(files, kind, f"{kind.root}/{name}")
        for kind in KINDS
        for name in files.folders(kind.root)
    ]
    return sorted(folders, key=lambda folder: folder.time)


def has_run_since(record: ChangeRecord, planned: int | None, committed: int | None) -> bool:
    """Return True if the query has planned or committed a batch since a change. `planned`,
    `committed`: the last batches now."""
    then, *now = (-1 if n is None else n for n in (record.committed, planned, committed))
    return now[0] > record.planned or now[1] > then


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


def took_effect(files: CheckpointFiles, record: ChangeRecord) -> bool:
    """Return True if the checkpoint has the last edit of a change."""
    if record.moved:
        return not files.exists(record.moved[-1])
    if not record.edited:
        return bool(record.removed_last) and not files.exists(record.removed_last[0])
    path = record.last_edit
    return files.exists(path) and digest(files.read_text(path)) == record.edited[path]


def restore_lost(folder: ChangeFolder) -> None:
    """Write the edited files that a killed edit has lost.

    Not every file system replaces a file in one step, so a killed edit may leave only an unfinished
    copy of the file. If a file and its unfinished copy are both missing, Spark has deleted the
    file, and the file is not written.
    """
    files, record = folder.files, folder.record()
    if record is None:
        return
    for path in record.replaced:
        if not files.exists(path) and files.unfinished(path):
            text = files.read_text(folder.saved(path))
            if took_effect(files, record):
                text = record.finishing.get(path, text)
            files.write_text(path, text)


def check_finished(files: CheckpointFiles) -> None:
    """Raise ConfigurationError unless the last change took effect, or no longer matters.

    A change no longer matters if the query has run since, with the former state or with the new
    state. For a rescale there is another case, see `_planned_anew`.
    """
    changes = changes_of(files)
    if not changes:
        return
    newest = changes[-1]
    record = newest.record()
    if record is not None and (
        has_run_since(record, *last_batches(files))
        or took_effect(files, record)
        or _planned_anew(newest, record)
    ):
        return
    kind = newest.kind
    raise ConfigurationError(
        f"{files.url_of(newest.path)} belongs to the {kind.noun} that is running or was "
        f"killed. If it is not running, undo it first: cowstate {kind.command} --revert {files.url}"
    )


def _planned_anew(folder: ChangeFolder, record: ChangeRecord) -> bool:
    """Return True if the query went back to an earlier batch after a rescale, and has planned the
    rescaled batch again with the former number of partitions."""
    if folder.kind != RESCALE or not record.edited or not folder.files.exists(record.last_edit):
        return False
    last = partitions_of_last_batch(folder.files)
    return (
        last is not None
        and last[1] == record.own["from"]
        and not folder.has_own_text(record, record.last_edit)
    )


def finish_last(files: CheckpointFiles) -> None:
    """Finish the last change if the change took effect and was killed before its end."""
    changes = changes_of(files)
    record = changes[-1].record() if changes else None
    if record is None or changes[-1].is_done:
        return
    restore_lost(changes[-1])
    if took_effect(files, record) or _took_effect_long_ago(changes[-1], record):
        finish(files, record)


def _took_effect_long_ago(folder: ChangeFolder, record: ChangeRecord) -> bool:
    """Return True if a rescale took effect so long ago that Spark has deleted the file with the
    rescale's last edit."""
    if folder.kind != RESCALE or not record.edited or folder.files.exists(record.last_edit):
        return False
    last = partitions_of_last_batch(folder.files)
    return last is not None and last[0] > record.planned and last[1] == record.own["to"]


def finish(files: CheckpointFiles, record: ChangeRecord) -> None:
    """Make the removals and edits that follow after a change took effect. Edits a file only if the
    file still has its text in `record.between`. Safe to call again."""
    for path in record.removed_last:
        files.delete(path)
    for path, text in record.finishing.items():
        if files.exists(path) and files.read_text(path) == record.between[path] != text:
            files.write_text(path, text)
    delete_unfinished(files, (*record.edited, *record.removed_last))


def delete_unfinished(files: CheckpointFiles, paths: Iterable[str]) -> None:
    """Delete the hidden files that killed writers of the files `paths` have left."""
    for path in paths:
        for unfinished in files.unfinished(path):
            files.delete(unfinished)
