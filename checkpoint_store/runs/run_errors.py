"""Errors about runs of a query in conflict with each other or with the query's checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint_store.damage_advice import HOW_TO_GO_BACK
from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.errors import CheckpointStoreError
from checkpoint_store.runs.run_lineage import Contradiction

_ATTACH = "cowstate attach <checkpoint location> --store <spark.cowstate.store>"


@dataclass(eq=False)
class RunOverError(CheckpointStoreError):
    """A run cannot go on because a later run of its query has begun (I9)."""

    url: str
    run: Run
    newer_run: int
    epoch: int

    def __str__(self) -> str:
        return (
            f"run {_named(self.run)} of the query is over: run {self.newer_run}, a newer run, has "
            f"begun with epoch {self.epoch} in {self.url}; nothing was changed. If two queries use "
            "one checkpoint location, stop one of them. Then start the query again: it goes on "
            "from the epoch that Spark has committed"
        )


@dataclass(eq=False)
class OvertakenRunError(CheckpointStoreError):
    """A run begins with an epoch, but an older run has already gone past the epoch (I4, I9)."""

    url: str
    run: Run
    epoch: int
    older_run: int
    reached: int

    def __str__(self) -> str:
        return (
            f"run {_named(self.run)} is to begin with epoch {self.epoch}, but run {self.older_run} "
            f"has gone on to epoch {self.reached} in {self.url}; nothing was changed. If another "
            "driver runs this query, stop one of them and start the query again. If the query was "
            f"taken back to an earlier batch, say so: {_ATTACH} --apply"
        )


@dataclass(eq=False)
class ContradictingRunsError(CheckpointStoreError):
    """Two runs went on from the same epoch, and the store cannot tell which run Spark committed
    (I9)."""

    url: str
    epoch: int
    older_run: int
    newer_run: int

    def __str__(self) -> str:
        return (
            f"runs {self.older_run} and {self.newer_run} of the query have both written epoch "
            f"{self.epoch} in {self.url}, with different contents, and the store cannot tell "
            "which of them Spark has committed; nothing was changed. Stop all drivers of the query "
            f"and name the run whose batch {self.epoch} Spark has committed: {_ATTACH} --run <run> "
            "--apply. Without --run and --apply it lists the runs. A driver that failed with "
            f"'Concurrent update to the log' for batch {self.epoch} did not commit it"
        )


@dataclass(eq=False)
class EpochsLostError(CheckpointStoreError):
    """A store lacks the newest epoch that Spark has committed."""

    url: str
    epoch: int
    newest: int | None

    def __str__(self) -> str:
        has = "no epoch" if self.newest is None else f"epoch {self.newest} as the newest before"
        return (
            f"Spark has committed epoch {self.epoch} of the query, but {self.url} has {has}: it "
            "was put back from an older copy, or objects are lost. Nothing was changed. Restore "
            f"the store as it was after epoch {self.epoch}, or take the query back to the batch "
            f"after the epoch that the store has: {HOW_TO_GO_BACK}"
        )


@dataclass(eq=False)
class StoreOfOtherCheckpointError(CheckpointStoreError):
    """The store belongs to a query with another checkpoint location."""

    url: str
    owner: str | None
    checkpoint: str

    def __str__(self) -> str:
        return (
            f"{self.url} belongs to the query whose checkpoint is "
            f"{self.owner or 'at another location'}, and this query has its checkpoint at "
            f"{self.checkpoint}: the checkpoint was copied or moved. Nothing was changed. A copy "
            "needs a store of its own: start it with a new checkpointLocation and "
            f"spark.cowstate.restoreFrom. A checkpoint that was moved takes its stores along: "
            f"cowstate attach {self.checkpoint} --store <spark.cowstate.store> --apply"
        )


@dataclass(eq=False)
class RunChoiceError(CheckpointStoreError):
    """The user must name the run that counts, or has named an unsuitable run."""

    url: str
    problem: str
    runs: tuple[str, ...]

    def __str__(self) -> str:
        told = "; ".join(self.runs) or "no run has begun"
        return (
            f"{self.url}: {self.problem}. {told}. Nothing was changed. Say with --run which run "
            "counts, by its number or its id: Spark logs the run id of a query when it starts, and "
            "its progress shows it as runId"
        )


@dataclass(eq=False)
class NoEpochToAttachError(CheckpointStoreError):
    """The store has no whole epoch up to the last batch that Spark has committed."""

    url: str
    committed: int
    held: str

    def __str__(self) -> str:
        return (
            f"{self.url} has no whole epoch up to batch {self.committed}, the last one that Spark "
            f"has committed; it has {self.held}. Nothing was changed. Restore the "
            "store as it was after that batch, or use a newer checkpoint. If Spark has never run "
            "this operator in a committed batch, delete its directory"
        )


def _named(run: Run) -> str:
    """A run's number in its store and the run's id. Spark logs the id."""
    return f"{run.number} ({run.run_id})"


def contradicting(url: str, contradiction: Contradiction) -> ContradictingRunsError:
    """Build the error for two runs that both went on from one epoch."""
    newer, older_run = contradiction.newer, contradiction.older_run
    return ContradictingRunsError(url, newer.first_epoch, older_run, newer.run.number)
