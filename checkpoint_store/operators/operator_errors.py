"""Errors for a URL without the requested operator."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.errors import CheckpointStoreError, NotAStoreError

_OPERATORS = (
    "Name <store>/<query id>/<operator>, or <store>/<query id> for all operators; <store> is the "
    "query's spark.cowstate.store"
)


class NoOperatorStoreError(NotAStoreError):
    """The URL has neither the store of an operator, nor a directory with such stores."""

    def __str__(self) -> str:
        below = f"; below it there are {', '.join(self.below[:10])}" if self.below else ""
        return f"no store.json in {self.url}, nor in a directory of it{below}. {_OPERATORS}"


@dataclass(eq=False)
class NotAnOperatorError(CheckpointStoreError):
    """The URL has a table, or the checkpoint of a query, instead of an operator's store."""

    url: str

    def __str__(self) -> str:
        return (
            f"{self.url} is neither the store of an operator in Python nor a savepoint of one. "
            f"{_OPERATORS}. A query on the state store provider has its state in its checkpoint, "
            "and a table keeps its versions"
        )
