"""Errors of tables, named by what the caller can do about them.

    CowstateError (spark_state.errors)
    ├── InputRowError           rows cannot be written as they are; the table did not change
    │   ├── DuplicateKeyError   a batch has several rows of a key, and nothing says which one wins
    │   ├── NullKeyError        a key column is null
    │   └── NullSequenceError   a row lacks the value that says which row wins
    ├── StateReplacedError      the state at the URL is not the one that the stream has read
    └── EpochsTakenBackError    the stream has handed out epochs that do not count any more

Every error keeps its values as attributes, and can be pickled because errors cross processes.
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
            "them wins: set option sequenceBy to a column that grows with every change, set "
            'onDuplicate to "first" or "last", or keep only one row of each key in the batch'
        )


@dataclass(eq=False)
class NullKeyError(InputRowError):
    """`rows` rows have a null in the key column `column`."""

    column: str
    rows: int

    def __str__(self) -> str:
        return (
            f"key column {self.column!r} is null in {self.rows} rows of a task: filter these rows "
            'out, or set option onNullKey to "drop", or to "keep" if null is a key like any other'
        )


@dataclass(eq=False)
class NullSequenceError(InputRowError):
    """`rows` rows have a null or NaN in `column`, the column that orders the rows of a key."""

    column: str
    rows: int

    def __str__(self) -> str:
        return (
            f"column {self.column!r} of option sequenceBy is null or NaN in {self.rows} rows of a "
            "task, so it cannot order them among the rows of their key: filter these rows out, or "
            "fill the column"
        )


@dataclass(eq=False)
class StateReplacedError(CowstateError):
    """The state at `url` is not the state that a stream has read.

    The two differ in `fact`, which is fixed when a state is created: `former` is its value in the
    state that was read, `present` its value in the state at the URL.
    """

    url: str
    fact: str
    former: object
    present: object

    def __str__(self) -> str:
        return (
            f"{self.url} is not the state that this query has read so far: its {self.fact} is "
            f"{self.present!r} and was {self.former!r}. Give the query its former URL, or a new "
            "checkpoint location to read the new state from its beginning"
        )


@dataclass(eq=False)
class EpochsTakenBackError(CowstateError):
    """A stream has handed out epochs `first` to `last` of the operator at `url` as run `run` wrote
    them, and these epochs do not count any more."""

    url: str
    first: int
    last: int
    run: int

    def __str__(self) -> str:
        epochs = f"epochs {self.first} to {self.last}"
        if self.first == self.last:
            epochs = f"epoch {self.last}"
        return (
            f"the query that writes {self.url} went back: this stream has handed out {epochs} as "
            f"run {self.run} of the query wrote them, and they do not count any more. A stream "
            f"cannot take rows back: delete the rows whose _commit_version is {self.first} or "
            "greater from its target, and start it with a new checkpoint location and option "
            f"startingVersion {self.first}; or begin with a new checkpoint location and an empty "
            "target"
        )
