"""What an adoption leaves in the checkpoint, so that it can be undone; and when one may begin.

In the folder <checkpoint>/_cowstate_adopt/<time>/:

    adoption.json      an AdoptionRecord, written before any change
    place.json         the directory of an object store to which the state goes: a StatePlace,
                       written before anything is written there
    files/<path>       edited and removed files, as they were
    state/             the state that Spark kept of a transformWithState that is on cowstate now

See adoption and operator_adoption.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from checkpoint_store.files.document import Source
from checkpoint_store.object_names import STATE_PLACE
from checkpoint_store.provider.state_place import StatePlace, decode_state_place
from spark_state.errors import ConfigurationError, CowstateError
from spark_state.spark.provider.checkpoint_files import CheckpointFiles
from spark_state.spark.provider.query_checkpoint import QueryCheckpoint, list_files

ADOPTIONS = "_cowstate_adopt"
QUIET_SECONDS = 30
STATE = "state"
_RECORD = "adoption.json"
_PLACE = "place.json"
Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is to do."""


class AdoptionError(CowstateError):
    """The state could not be written for the other provider; the checkpoint is as it was."""


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """The content of adoption.json.

    edited: by path, the SHA-256 of the new content; a path that is in `created`, too, had none
    before. removed: in their order; the checkpoint's word of an object store comes last. store: the
    URL of the store that has the state of a transformWithState; None where the query's provider
    changed.
    """

    source: str
    target: str
    planned: int
    committed: int | None
    edited: dict[str, str]
    removed: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    store: str | None = None

    def to_json(self) -> str:
        store = {} if self.store is None else {"store": self.store}
        return json.dumps(
            {
                "format": 1,
                "from": self.source,
                "to": self.target,
                "last_planned_batch": self.planned,
                "last_committed_batch": self.committed,
                "edited": self.edited,
                "removed": list(self.removed),
                "created": list(self.created),
                **store,
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> AdoptionRecord:
        content: dict[str, Any] = json.loads(text)
        return cls(
            content["from"],
            content["to"],
            content["last_planned_batch"],
            content["last_committed_batch"],
            content["edited"],
            tuple(content["removed"]),
            tuple(content["created"]),
            content.get("store"),
        )


def new_folder() -> str:
    """The folder of an adoption that begins now."""
    return f"{ADOPTIONS}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


def last_folder(files: CheckpointFiles) -> str:
    """The folder of the last adoption. Raises ConfigurationError if there is none."""
    folders = files.folders(ADOPTIONS)
    if not folders:
        raise ConfigurationError(f"{files.url} has no adoption to revert: none was applied")
    return f"{ADOPTIONS}/{folders[-1]}"


def seconds_since_change(files: CheckpointFiles, checkpoint: QueryCheckpoint, now_ms: int) -> float:
    """The age of the newest file that a running query may have changed, and not an adoption."""
    own = _written_by_last_adoption(files)
    changed = max((f.changed_ms for f in checkpoint.files if f.path not in own), default=0)
    return (now_ms - changed) / 1000


def _written_by_last_adoption(files: CheckpointFiles) -> set[str]:
    for name in reversed(files.folders(ADOPTIONS)):
        record = read_record(files, f"{ADOPTIONS}/{name}")
        if record is not None:
            return {*record.edited, *record.created, *record.removed}
    return set()


def read_record(files: CheckpointFiles, folder: str) -> AdoptionRecord | None:
    """The record of an adoption; None if it has changed nothing yet."""
    path = f"{folder}/{_RECORD}"
    return AdoptionRecord.from_json(files.read_text(path)) if files.exists(path) else None


def check_finished(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> None:
    """Raises ConfigurationError unless the last adoption took effect.

    It did if its edit of the offset log is still there, or if the query has planned later batches.
    """
    folders = files.folders(ADOPTIONS)
    if not folders:
        return
    folder = f"{ADOPTIONS}/{folders[-1]}"
    record = read_record(files, folder)
    if record is not None and (checkpoint.planned > record.planned or _took_effect(files, record)):
        return
    raise ConfigurationError(
        f"{files.url_of(folder)} belongs to an adoption that is running or was killed. If it is "
        f"not running, undo it first: cowstate adopt --revert {files.url}"
    )


def _took_effect(files: CheckpointFiles, record: AdoptionRecord) -> bool:
    if record.store is not None:
        return not files.exists(STATE)
    if not record.edited:
        # It moved the state into the checkpoint, and nothing else.
        return not files.exists(STATE_PLACE)
    path, edited = list(record.edited.items())[-1]
    return files.exists(path) and digest(files.read_text(path)) == edited


def check_quiet(files: CheckpointFiles, checkpoint: QueryCheckpoint, folder: str) -> None:
    """Raises ConfigurationError if the query seems to be running."""
    seconds = seconds_since_change(files, checkpoint, files.now_ms(folder))
    if seconds < QUIET_SECONDS:
        raise ConfigurationError(
            f"{files.url} changed {max(seconds, 0):.0f} s ago: the query seems to be running. Stop "
            f"the query and wait {QUIET_SECONDS} s, or pass --force if it is stopped already"
        )


def check_unchanged(files: CheckpointFiles, checkpoint: QueryCheckpoint) -> None:
    """Raises ConfigurationError if the query has run since the checkpoint was read."""
    if list_files(files) != checkpoint.files:
        raise ConfigurationError(
            f"{files.url} changed during the adoption: the query is running. Nothing was adopted; "
            "stop the query and run the command again"
        )


def back_up(files: CheckpointFiles, folder: str, record: AdoptionRecord) -> None:
    """Copy what will change, and write the record."""
    for path in (*record.edited, *record.removed):
        if path not in record.created:
            files.copy(path, saved(folder, path))
    files.write_text(f"{folder}/{_RECORD}", record.to_json())


def put_back_edited(files: CheckpointFiles, folder: str, record: AdoptionRecord) -> None:
    """Put back the edited files, the newest entry of the offset log first. May be called again."""
    for path in reversed(record.edited):
        if path in record.created:
            files.delete(path)
            continue
        text = files.read_text(saved(folder, path))
        if files.read_text(path) != text:
            files.write_text(path, text)


def check_edited(files: CheckpointFiles, folder: str, record: AdoptionRecord) -> None:
    """Raises ConfigurationError if somebody else has changed a file that the adoption edited."""
    for path, edited in record.edited.items():
        if path in record.created:
            continue
        allowed = (edited, digest(files.read_text(saved(folder, path))))
        if digest(files.read_text(path)) not in allowed:
            raise ConfigurationError(
                f"{files.url_of(path)} was changed after {folder}, and not by adopt. Its former "
                f"content is in {files.url_of(saved(folder, path))}; put it back first"
            )


def note_place(files: CheckpointFiles, folder: str, place: StatePlace) -> None:
    """Write where the state goes, before anything is written there."""
    files.write_text(f"{folder}/{_PLACE}", place.encode().decode())


def noted_place(files: CheckpointFiles, folder: str) -> StatePlace | None:
    """The place to which the state of an adoption went; None if it went into the checkpoint."""
    path = f"{folder}/{_PLACE}"
    if not files.exists(path):
        return None
    return decode_state_place(files.read_text(path).encode(), Source(files.url, path))


def forget(files: CheckpointFiles, folder: str) -> None:
    """Delete the folder of an adoption, the record first."""
    files.delete(f"{folder}/{_RECORD}")
    files.delete(folder)
    if not files.folders(ADOPTIONS):
        files.delete(ADOPTIONS)


def saved(folder: str, path: str) -> str:
    """Where the former content of a file is."""
    return f"{folder}/files/{path}"


def digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
