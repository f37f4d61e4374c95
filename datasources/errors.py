"""Errors of the sink and the streams of `format("cowstate")`. Every message says what to do.

    CowstateError (spark_state.errors)
    ├── InputRowError           rows break a rule of the table; the table did not change
    │   ├── DuplicateKeyError   a batch has several rows of a key, and no rule for the winner
    │   ├── NullKeyError        a key column is null
    │   └── NullSequenceError   a row has no value in the column that orders the rows of a key
    ├── StateReplacedError      the state at a stream's URL is not the state that the stream read
    └── EpochsTakenBackError    the stream has handed out epochs that no longer count

Every error keeps its values as attributes. Errors cross processes, so every error can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint_store.amounts import epochs_text
from spark_state.errors import CowstateError


class InputRowError(CowstateError):
    """Rows that break a rule of the table. Change the rows, or the option in the message."""


@dataclass(eq=False)
class DuplicateKeyError(InputRowError):
    """Several rows of a key in one batch. `keys`: some of the repeated keys."""

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
    """A null in key column `column`, in `rows` rows of a task."""

    column: str
    rows: int

    def __str__(self) -> str:
        return (
            f"key column {self.column!r} is null in {self.rows} rows of a task: filter these rows "
            'out, or set option onNullKey to "drop", or to "keep" if null is a key like any other'
        )


@dataclass(eq=False)
class NullSequenceError(InputRowError):
    """A null or NaN in `column`, the column that orders the rows of a key, in `rows` rows of a
    task."""

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
    """State at `url` that is not the state which a stream has read so far. `fact`: a fixed property
    in which the two states differ. `former`: the value of `fact` in the state that the stream has
    read. `present`: the value of `fact` in the state now at the URL."""

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
    """Epochs that a stream has handed out and that no longer count: epochs `first` to `last` of the
    operator at `url`. `run`: the run that wrote the epochs."""

    url: str
    first: int
    last: int
    run: int

    def __str__(self) -> str:
        return (
            f"the query that writes {self.url} went back: this stream has handed out "
            f"{epochs_text(self.first, self.last)} as run {self.run} of the query wrote them, and "
            "they do not count any more. A stream cannot take rows back: delete the rows whose "
            f"_commit_version is {self.first} or greater from its target, and start it with a new "
            f"checkpoint location and option startingVersion {self.first}; or begin with a new "
            "checkpoint location and an empty target"
        )
