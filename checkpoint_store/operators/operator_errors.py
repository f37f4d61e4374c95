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
    """The URL has a table, or the checkpoint of `query_id`, instead of an operator's store."""

    url: str
    query_id: str | None = None

    def __str__(self) -> str:
        return f"{self.url} is not the store of an operator. {self._advice()}"

    def _advice(self) -> str:
        return _OPERATORS.replace("<query id>", self.query_id or "<query id>")


class NoProgressError(NotAnOperatorError):
    """The URL of a progress request has no operator."""

    def __str__(self) -> str:
        return (
            f"{self.url} is not the store of an operator, so it has no progress of one. "
            f"{self._advice()}. Operators of Spark have theirs in Spark's own lastProgress"
        )


class NoSavepointError(NotAnOperatorError):
    """The URL to take a savepoint of, or to restore from, has no operator and no savepoint."""

    def __str__(self) -> str:
        return (
            f"{self.url} is neither the store of an operator nor a savepoint of one. "
            f"{self._advice()}, or what `cowstate savepoint` has written. Only operators in Python "
            "have savepoints: a query on the state store provider has its state in its checkpoint, "
            "and a table keeps its versions"
        )
