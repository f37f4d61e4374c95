"""Description of an operator state: name, mode, type of the items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from spark_state.errors import StateMigrationError

OperatorStateMode = Literal["split", "union", "broadcast"]


@dataclass(frozen=True, slots=True)
class OperatorStateMetaInfo:
    """Description of one state. `item_type`: Arrow struct of an item; for a broadcast state with
    the fields `key` and `value`."""

    name: str
    mode: OperatorStateMode
    item_type: pa.StructType

    def __str__(self) -> str:
        return f"{self.mode} of {self.item_type}"


def check_compatible(
    stored: OperatorStateMetaInfo, other: OperatorStateMetaInfo, whose: str
) -> None:
    """Raise StateMigrationError unless both states have the same mode and type. `whose`: origin of
    `other`, for the error, such as "the snapshot of subtask 3"."""
    if (stored.mode, stored.item_type) != (other.mode, other.item_type):
        raise StateMigrationError(
            f"operator state {stored.name!r} is kept as {stored}, {whose} has {other}; keep mode "
            "and schema as they are, give the state another name, or start without the snapshot"
        )
