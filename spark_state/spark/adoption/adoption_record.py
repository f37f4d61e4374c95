"""What an adoption notes of itself, in its folder: see checkpoint_change.

adoption.json      an AdoptionRecord, written before any change
state/             the state that Spark kept of a transformWithState that is on cowstate now
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_state.errors import CowstateError
from spark_state.spark.stopped_query.checkpoint_change import ChangeFolder


class AdoptionError(CowstateError):
    """The state could not be written for the other provider; the checkpoint is as it was."""


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """The content of adoption.json.

    edited: by path, the SHA-256 of the new content. store: the URL of the store that has the state
    of a transformWithState; None where the query's provider changed.
    """

    source: str
    target: str
    planned: int
    committed: int | None
    edited: dict[str, str]
    removed: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    store: str | None = None

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
