"""Errors of reading the state of a query on the provider. `errors` has the errors of all stores."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.errors import CheckpointStoreError


@dataclass(eq=False)
class NotACheckpointError(CheckpointStoreError):
    """The URL has no commit of a query."""

    url: str

    def __str__(self) -> str:
        return (
            f"{self.url} has no committed batch: nothing is in commits/. Name what the query has "
            "as checkpointLocation, or let it run first"
        )


@dataclass(eq=False)
class StoreNotFoundError(CheckpointStoreError):
    """A query has no such operator, or the operator has no such store. `present`: the number of
    each operator, with the names of the operator's stores."""

    url: str
    operator: int
    store_name: str
    present: tuple[tuple[int, tuple[str, ...]], ...]

    def __str__(self) -> str:
        missing = f"{self.url} has no store {self.store_name!r} of operator {self.operator}"
        if not self.present:
            return (
                f"{missing}, and no other one: the query keeps no state in its checkpoint. The "
                "state of a Python operator is in <spark.cowstate.store>/<query id>/<operator>"
            )
        there = "; ".join(
            f"operator {number}: {', '.join(names)}" for number, names in self.present
        )
        return f"{missing}. Its stores are {there}. {self.words.choose_store}"


@dataclass(eq=False)
class StateChoiceError(CheckpointStoreError):
    """The caller chose a state in the wrong way for this kind of store. A ProviderStore chooses a
    state in the checkpoint of a query on the provider. A name chooses a state in a table or in the
    store of a Python operator."""

    url: str
    choice: str

    def __str__(self) -> str:
        return (
            f"{self.url} has no {self.choice}. In the store of a Python operator: "
            f"{self.words.choose_state}. In the checkpoint of a query on the provider: "
            f"{self.words.choose_store}. A table has one state"
        )


@dataclass(eq=False)
class UnreadableStateError(CheckpointStoreError):
    """The state can be decoded by Spark only. `name`: the file or directory of the state."""

    url: str
    name: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.url} cannot be read by cowstate: {self.problem}. Read this "
            'state with Spark\'s own reader, spark.read.format("statestore")'
        )


@dataclass(eq=False)
class ChangesNotKnownError(CheckpointStoreError):
    """The state of a version is known, but the changes of the version's batch are not. `first`: the
    oldest version from which on every version has changes; None if there is no such version."""

    url: str
    directory: str
    version: int
    first: int | None = None

    def __str__(self) -> str:
        batches_known = (
            "of no batch yet" if self.first is None else f"from batch {self.first - 1} on"
        )
        return (
            f"{self.directory} in {self.url}: the changes of version {self.version}, which batch "
            f"{self.version - 1} made, are not known: its state was converted by cowstate adopt, "
            "or its changelog was merged or deleted as one of an expired batch. Changes are known "
            f"{batches_known}"
        )
