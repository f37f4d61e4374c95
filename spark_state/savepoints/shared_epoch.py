"""The one epoch of all operators of a query: the newest that all of them have.

Operators of a query that runs are not at the same epoch at every moment, and what one had after an
epoch belongs to what the others had after the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_store.operators.operator_history import OperatorHistory
from spark_state.errors import ConfigurationError


def shared_epoch(url: str, epochs: Mapping[str, Sequence[int]], way_out: str) -> int:
    """The newest epoch that all operators below `url` have. `epochs`: those of each, by its name,
    in order, at least one. Raises ConfigurationError, which names the epochs that there are."""
    common = set.intersection(*map(set, epochs.values()))
    if not common:
        ranges = ", ".join(
            f"{operator} has {epochs_text(held)}" for operator, held in epochs.items()
        )
        raise ConfigurationError(
            f"the operators below {url} have no epoch in common: {ranges}. {way_out}"
        )
    return max(common)


def epochs_of(histories: Sequence[OperatorHistory]) -> dict[str, Sequence[int]]:
    """The whole epochs of each operator, by the name of its directory. Raises
    VersionNotRetainedError if one has none."""
    held: dict[str, Sequence[int]] = {}
    for history in histories:
        versions = history.versions()
        if not versions:
            raise history.absent(-1, versions)
        held[directory_name(history)] = versions
    return held


def directory_name(history: OperatorHistory) -> str:
    """The name of a store's directory, which is that of the operator in its query."""
    return history.url.rstrip("/").rpartition("/")[2]


def epochs_text(epochs: Sequence[int]) -> str:
    """Epochs in order, as a message shows them."""
    return f"{epochs[0]} to {epochs[-1]}"
