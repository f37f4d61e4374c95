"""Errors of tables, named by what the caller can do about them.

    CowstateError (spark_state.errors)
    ├── InputRowError           rows that cannot be written as they are: nothing was changed
    │   ├── DuplicateKeyError   several rows of a key, and nothing says which one wins
    │   ├── NullKeyError        a key column is null
    │   └── NullSequenceError   the value that says which row wins is missing
    └── StateReplacedError      a stream finds another state where the one that it read was

Every error keeps its values as attributes and survives pickling: errors cross processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_state.errors import CowstateError


class InputRowError(CowstateError):
    """Rows break a rule of the table: change the rows, or the option that the message names."""


@dataclass(eq=False)
class DuplicateKeyError(InputRowError):
    """One batch has several rows of a key. `keys`: some of them."""

    key_names: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]

    def __str__(self) -> str:
        shown = "; ".join(
            ", ".join(f"{name}={value!r}" for name, value in zip(self.key_names, key, strict=True))
            for key in self.keys
        )
        return (
            f"one batch has several rows of one key, such as {shown}, and nothing says which of "
            "them wins: set option sequenceBy to a column that grows with every change, or "
            'onDuplicate to "first" or "last", or leave one row of a key in the batch'
        )


@dataclass(eq=False)
class NullKeyError(InputRowError):
    """`rows` rows have a null in the key column `column`."""

    column: str
    rows: int

    def __str__(self) -> str:
        return (
            f"key column {self.column!r} is null in {self.rows} rows of a task: filter them out, "
            'or set option onNullKey to "drop", or to "keep" if null is a key like any other'
        )


@dataclass(eq=False)
class NullSequenceError(InputRowError):
    """`rows` rows have a null or NaN in `column`, by which rows of a key are ordered."""

    column: str
    rows: int

    def __str__(self) -> str:
        return (
            f"column {self.column!r} of option sequenceBy is null or NaN in {self.rows} rows of a "
            "task, so nothing says whether they are older than others of their key: filter them "
            "out, or fill the column"
        )


@dataclass(eq=False)
class StateReplacedError(CowstateError):
    """A stream has read another state at `url` than the one that is there: the two differ in
    `fact`, which was fixed when each was created."""

    url: str
    fact: str
    known: object
    found: object

    def __str__(self) -> str:
        return (
            f"{self.url} is not the state that this query has read so far: its {self.fact} is "
            f"{self.found!r} and was {self.known!r}. Give the query the URL that it had, or a new "
            "checkpoint location to read the state that is there from its beginning"
        )
