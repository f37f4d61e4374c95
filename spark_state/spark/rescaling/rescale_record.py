"""The record that a rescale writes to its folder, see checkpoint_change."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_state.spark.rescaling.rescale_edits import RescaleEdits
from spark_state.spark.rescaling.rescale_plan import RescalePlan
from spark_state.spark.stopped_query.checkpoint_change import digest


@dataclass(frozen=True, slots=True)
class RescaleRecord:
    """The content of rescale.json, see checkpoint_change and rescale_edits.

    `stores`: by the number of each operator with new partitions, the names of its stores;
    `created`: paths of other new files; `edited`: by path, the SHA-256 of the new content;
    `between`, `finishing`: by path, the texts before and after the change takes effect, without the
    file whose edit takes effect.
    """

    partitions: int
    target: int
    planned: int
    committed: int | None
    attempt: str
    stores: dict[int, tuple[str, ...]]
    created: tuple[str, ...]
    edited: dict[str, str]
    between: dict[str, str]
    finishing: dict[str, str]

    def content(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {
            "format": 1,
            "from": self.partitions,
            "to": self.target,
            "last_planned_batch": self.planned,
            "last_committed_batch": self.committed,
            "attempt": self.attempt,
            "stores": {str(number): list(names) for number, names in self.stores.items()},
            "edited": self.edited,
            "between": self.between,
            "finishing": self.finishing,
            "removed": [],
            "created": list(self.created),
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> RescaleRecord:
        """The record from the JSON values of `content`."""
        return cls(
            content["from"],
            content["to"],
            content["last_planned_batch"],
            content["last_committed_batch"],
            content["attempt"],
            {int(number): tuple(names) for number, names in content["stores"].items()},
            tuple(content["created"]),
            content["edited"],
            content["between"],
            content["finishing"],
        )

    @classmethod
    def of_plan(cls, plan: RescalePlan) -> RescaleRecord:
        """The record of a rescale that begins now, without edits."""
        checkpoint = plan.checkpoint
        return cls(
            plan.partitions,
            plan.target,
            checkpoint.planned,
            checkpoint.committed,
            uuid.uuid4().hex[:16],
            {each.operator.number: each.operator.stores for each in plan.rescaled},
            plan.new_notes,
            {},
            {},
            {},
        )

    def with_edits(self, edits: RescaleEdits) -> RescaleRecord:
        """The record with the planned edits."""
        return replace(
            self,
            edited={edit.path: digest(edit.after) for edit in edits.all},
            between={edit.path: edit.between for edit in edits.others},
            finishing={edit.path: edit.after for edit in edits.others},
        )
