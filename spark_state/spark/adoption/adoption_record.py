"""The files that an adoption writes to its folder, see checkpoint_change:

adoption.json      an AdoptionRecord, written before any change
place.json         the directory of an object store for the state: a StatePlace, written before
                   the first file in the directory
state/             Spark's state of a transformWithState that is on cowstate now
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint_store.files.document import Source
from checkpoint_store.provider.state_place import StatePlace, decode_state_place
from spark_state.errors import CowstateError
from spark_state.spark.stopped_query.checkpoint_change import ChangeFolder

_PLACE = "place.json"


class AdoptionError(CowstateError):
    """The state could not be written for the other provider; the checkpoint is unchanged."""


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """The content of adoption.json.

    `edited`: by path, the SHA-256 of the new content; if the path is also in `created`, the file is
    new; `removed`: in the order of removal, with the file that names an object store last; `store`:
    the URL of the store with the state of a transformWithState; None if the query's provider
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

    @property
    def replaced(self) -> dict[str, str]:
        """The edited files that existed before."""
        return {path: new for path, new in self.edited.items() if path not in self.created}

    def content(self) -> dict[str, Any]:
        """The record as JSON values."""
        store = {} if self.store is None else {"store": self.store}
        return {
            "format": 1,
            "from": self.source,
            "to": self.target,
            "last_planned_batch": self.planned,
            "last_committed_batch": self.committed,
            "edited": self.edited,
            "removed": list(self.removed),
            "created": list(self.created),
            **store,
        }

    @classmethod
    def of(cls, folder: ChangeFolder) -> AdoptionRecord | None:
        """The record in a folder; None if the adoption has changed nothing yet."""
        content = folder.record()
        if content is None:
            return None
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


def note_place(folder: ChangeFolder, place: StatePlace) -> None:
    """Write the place of the state, before any file is written to the place."""
    folder.files.write_text(f"{folder.path}/{_PLACE}", place.encode().decode())


def noted_place(folder: ChangeFolder) -> StatePlace | None:
    """The place of an adoption's state; None if the state went into the checkpoint."""
    files, path = folder.files, f"{folder.path}/{_PLACE}"
    if not files.exists(path):
        return None
    return decode_state_place(files.read_text(path).encode(), Source(files.url, path))
