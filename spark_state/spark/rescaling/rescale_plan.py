"""Plans another number of partitions for a checkpoint, and refuses checkpoints that cannot change.
Pure.

Spark puts a row into the partition with the number: hash of the key modulo number of partitions. So
every row of the state from which the next batch starts gets a new partition, in each store of each
operator with partitions by key. Older states keep the former number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_state.errors import ConfigurationError, UnsupportedOperationError
from spark_state.spark.provider.provider_class import PROVIDER_CLASS, short_name
from spark_state.spark.provider.query_checkpoint import (
    PARTITIONS,
    QueryCheckpoint,
    StatefulOperator,
    check_encoding,
)

_STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"
_NOTE = "_cowstate-store"
"""The name of the file that says that a partition is in an object store, see
PlacedStateDirectory.scala."""


Partitionings = Mapping[tuple[int, str], tuple[str, ...]]
"""The key columns that decide the partition of a store's rows, by the number of the operator and
the name of the store; empty: the store has a single partition."""


@dataclass(frozen=True, slots=True)
class RescaledOperator:
    """An operator whose rows are distributed again. `columns`: the key columns that decide the
    partition of a row."""

    operator: StatefulOperator
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RescalePlan:
    """The present and the new number of partitions; the operators to rescale, and the operators
    with a single partition, which do not change."""

    checkpoint: QueryCheckpoint
    partitions: int
    target: int
    rescaled: tuple[RescaledOperator, ...]
    single: tuple[StatefulOperator, ...]

    @property
    def moves_rows(self) -> bool:
        """True if there is state to distribute. A query without a committed batch has no state."""
        return self.checkpoint.version > 0 and bool(self.rescaled)

    def bytes_of(self, rescaled: RescaledOperator) -> int:
        """The bytes of the files of an operator's present partitions, in the checkpoint or the
        object store."""
        folders = {directory.path for directory in rescaled.operator.directories}
        lengths = {file.path: file.length for file in self.checkpoint.files}
        lengths |= self.checkpoint.stored
        return sum(n for path, n in lengths.items() if path.rpartition("/")[0] in folders)

    @property
    def new_notes(self) -> tuple[str, ...]:
        """The paths of the notes to write. A note is a file in the directory of a partition, and
        says that the partition is in an object store. Empty if the state is in the checkpoint."""
        if self.checkpoint.place is None or not self.moves_rows:
            return ()
        there = {file.path for file in self.checkpoint.files}
        notes = [
            f"state/{each.operator.number}/{partition}/{_NOTE}"
            for each in self.rescaled
            for partition in range(self.target)
        ]
        return tuple(note for note in notes if note not in there)


def check_request(checkpoint: QueryCheckpoint, target: int) -> int:
    """The present number of partitions.

    Raises ConfigurationError or UnsupportedOperationError if the checkpoint cannot get `target`
    partitions. Does not read the stores.
    """
    url = checkpoint.url
    if target < 1:
        raise ConfigurationError(f"--partitions is {target}; it must be a whole number from 1")
    if checkpoint.provider != PROVIDER_CLASS:
        raise UnsupportedOperationError(
            f"{url} is on {short_name(checkpoint.provider)}, and rescale knows the files of "
            f"{short_name(PROVIDER_CLASS)} only. Let the query continue on cowstate first: "
            f"cowstate adopt {url} --apply"
        )
    present = checkpoint.partitions
    if present is None:
        raise UnsupportedOperationError(
            f"{url}: the newest entry of the offset log does not set {PARTITIONS}. Run the query "
            "once with the Spark that you use now"
        )
    if present == target:
        raise ConfigurationError(f"{url} has {target} partitions already: start the query")
    check_encoding(checkpoint)
    return present


def plan_rescale(
    checkpoint: QueryCheckpoint, target: int, partitionings: Partitionings
) -> RescalePlan:
    """The plan for giving this checkpoint `target` partitions.

    Raises ConfigurationError or UnsupportedOperationError with the reason and the way out.
    """
    present = check_request(checkpoint, target)
    rescaled, single = [], []
    for operator in checkpoint.operators:
        columns = partitionings[operator.number, operator.stores[-1]]
        if not columns:
            single.append(operator)
            continue
        # Before the first commit no state counts, and partitions may be missing.
        if checkpoint.committed is not None and operator.partitions != present:
            raise UnsupportedOperationError(
                f"{checkpoint.url}/state/{operator.number} has {operator.partitions} of the "
                f"{present} partitions of {operator.name}. Restore the missing ones from a copy"
            )
        rescaled.append(RescaledOperator(operator, columns))
    plan = RescalePlan(checkpoint, present, target, tuple(rescaled), tuple(single))
    _check_distribution(plan)
    return plan


def _check_distribution(plan: RescalePlan) -> None:
    """Raise UnsupportedOperationError if the query has a single partition, and Spark may distribute
    the query's rows in another way than by the hash of the key. The checkpoint of a single
    partition does not show how Spark distributes the rows.

    Only with the setting `_STRICT` does Spark always distribute rows by the hash of the key. Spark
    before 3.3 does not write the setting, and a missing setting counts as false.
    """
    checkpoint = plan.checkpoint
    strict = checkpoint.settings.get(_STRICT, "not set")
    if plan.moves_rows and plan.partitions == 1 and strict.lower() != "true":
        raise UnsupportedOperationError(
            f"offsets/{checkpoint.planned} of {checkpoint.url} does not set {_STRICT} = true (it "
            f"is {strict}): the query may deal out rows in another way than by the hash of the "
            "key, which its one partition does not show. Start the query with a new checkpoint"
        )
