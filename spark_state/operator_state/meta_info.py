"""Description of a state in a snapshot: name, mode, type of the items, offsets of the items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from spark_state.errors import StateMigrationError

OperatorStateMode = Literal["split", "union", "broadcast"]


@dataclass(frozen=True, slots=True)
class OperatorStateMetaInfo:
    """Description of one state in one snapshot. `item_type`: Arrow struct of an item; for a
    broadcast state with the fields `key` and `value`. `offsets`: rows of the items in the snapshot,
    one row per item, in order; empty for a state that is only registered."""

    name: str
    mode: OperatorStateMode
    item_type: pa.StructType
    offsets: range = field(default=range(0), compare=False)

    def __str__(self) -> str:
        return f"{self.mode} of {self.item_type}"


def check_compatible(
    stored: OperatorStateMetaInfo, other: OperatorStateMetaInfo, whose: str
) -> None:
    """Raise StateMigrationError unless both states have the same mode and type. `whose`: owner of
    `other`, for the error."""
    if (stored.mode, stored.item_type) != (other.mode, other.item_type):
        raise StateMigrationError(
            f"operator state {stored.name!r} is kept as {stored}, {whose} has {other}; keep mode "
            "and schema as they are, give the state another name, or start without the snapshot"
        )
