"""What a snapshot says of each state: its name, its mode, the type of its items, their offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from spark_state.errors import StateMigrationError

OperatorStateMode = Literal["split", "union", "broadcast"]


@dataclass(frozen=True, slots=True)
class OperatorStateMetaInfo:
    """One state of one snapshot.

    `item_type`: the Arrow struct of an item; of a broadcast state it has the fields `key` and
    `value`. `offsets`: the rows of the items in the snapshot, one each, in order; empty for a state
    that is registered only.
    """

    name: str
    mode: OperatorStateMode
    item_type: pa.StructType
    offsets: range = field(default=range(0), compare=False)

    def __str__(self) -> str:
        return f"{self.mode} of {self.item_type}"


def check_compatible(
    stored: OperatorStateMetaInfo, other: OperatorStateMetaInfo, whose: str
) -> None:
    """Raise StateMigrationError unless both have the same mode and type; `whose` is the other."""
    if (stored.mode, stored.item_type) != (other.mode, other.item_type):
        raise StateMigrationError(
            f"operator state {stored.name!r} is kept as {stored}, {whose} has {other}; keep mode "
            "and schema as they are, give the state another name, or start without the snapshot"
        )
