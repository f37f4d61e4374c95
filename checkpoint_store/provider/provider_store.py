"""The choice of a store of a query on the provider. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DEFAULT_STORE = "default"

JoinSide = Literal["left", "right"]

JOIN_STORES = tuple(
    f"{side}-{store}"
    for side in ("left", "right")
    for store in ("keyToNumValues", "keyWithIndexToValue")
)


def stores_beside(name: str) -> tuple[str, ...]:
    """The stores that the tasks of a join write together with the store `name`; empty if `name` is
    not a store of a join."""
    return tuple(other for other in JOIN_STORES if other != name) if name in JOIN_STORES else ()


@dataclass(frozen=True, slots=True)
class ProviderStore:
    """A store of an operator, in the words of Spark's statestore reader.

    `operator_id`: the operator's number, from 0. `store_name`: the store, for operators with
    several stores; None: the only store. `join_side`: the rows that a stream-stream join keeps of
    its left or right stream, in the store `<side>-keyWithIndexToValue`.

    Raises ValueError if both a store name and a side are given, or for an unknown side.
    """

    operator_id: int = 0
    store_name: str | None = None
    join_side: JoinSide | None = None

    def __post_init__(self) -> None:
        if self.join_side not in (None, "left", "right"):
            raise ValueError(f"join_side is {self.join_side!r}; it must be left or right")
        if self.join_side is not None and self.store_name is not None:
            raise ValueError(
                f"store_name {self.store_name!r} and join_side {self.join_side!r} both name a "
                "store; leave one of them out"
            )

    @property
    def name(self) -> str:
        """The store's name in Spark."""
        if self.join_side is not None:
            return f"{self.join_side}-keyWithIndexToValue"
        return self.store_name or DEFAULT_STORE
