"""Chooses the runs that may count, among all writers of the same epoch. Pure.

Spark commits no epoch that lacks subtasks. So a run with only a part of the epoch does not count if
another run has the whole epoch. Runs that went from the same base to the same state are
interchangeable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from checkpoint_store.epochs.completed_checkpoint import CompletedCheckpoint
from checkpoint_store.epochs.operator_layout import EpochDirectory
from checkpoint_store.errors import PartialEpochError

# Returns a run's checkpoint at an epoch, None if the run published nothing at the epoch. Raises
# PartialEpochError.
Completed = Callable[[EpochDirectory], CompletedCheckpoint | None]
AreSame = Callable[[CompletedCheckpoint, CompletedCheckpoint], bool]


def whole_rivals(
    directories: Iterable[EpochDirectory], completed: Completed, are_same: AreSame
) -> list[EpochDirectory]:
    """The runs that completed the epoch, in the given order. Of runs with the same result, only the
    first is listed. If several runs are listed, nobody can tell which run counts. If the list is
    empty, no run published anything. `directories`: the runs of one epoch. Raises PartialEpochError
    if runs published only parts of the epoch (I5)."""
    whole: list[tuple[EpochDirectory, CompletedCheckpoint]] = []
    partial: PartialEpochError | None = None
    for directory in directories:
        try:
            checkpoint = completed(directory)
        except PartialEpochError as error:
            partial = partial or error
            continue
        if checkpoint is None or any(are_same(other, checkpoint) for _, other in whole):
            continue
        whole.append((directory, checkpoint))
    if not whole and partial is not None:
        raise partial
    return [directory for directory, _ in whole]
