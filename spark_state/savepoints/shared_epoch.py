"""The newest epoch that all operators of a query have.

Operators of a running query may be at different epochs for a moment, but the state of an operator
after an epoch belongs to the other operators' state after the same epoch. An operator dropped from
the query stays at an old epoch for ever; a user asking for the newest epoch does not mean this old
epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_store.operators.operator_history import OperatorHistory
from spark_state.errors import ConfigurationError

# How many epochs one operator of a running query may be ahead of another operator.
_EPOCHS_APART = 2


def shared_epoch(
    url: str,
    histories: Sequence[OperatorHistory],
    epochs: Mapping[str, Sequence[int]],
    way_out: str,
) -> int:
    """Return the newest epoch that all operators below `url` have.

    `histories`: the operators; `epochs`: the epochs of each operator, from epochs_of; `way_out`:
    advice at the end of an error's message. Raises ConfigurationError if no epoch is common to all
    operators, or if one operator lags so far that the common epoch is old; and the errors of
    epochs_of.
    """
    shared = _newest_of_all(url, epochs, way_out)
    ahead = max(epochs, key=lambda operator: epochs[operator][-1])
    newest = epochs[ahead][-1]
    if newest - shared > _EPOCHS_APART:
        # The query may have gone on while epochs_of looked at one operator after another.
        epochs = epochs_of(histories)
        shared = _newest_of_all(url, epochs, way_out)
    if newest - shared > _EPOCHS_APART:
        lagging = min(epochs, key=lambda operator: epochs[operator][-1])
        raise ConfigurationError(
            f"{lagging} below {url} lags: its newest epoch is {epochs[lagging][-1]}, and {ahead} "
            f"has epoch {newest}. The newest that all operators have is {shared}. {way_out}"
        )
    return shared


def _newest_of_all(url: str, epochs: Mapping[str, Sequence[int]], way_out: str) -> int:
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
    """Return the whole epochs of each operator, by directory name. Raises VersionNotRetainedError
    if an operator has no epoch."""
    held: dict[str, Sequence[int]] = {}
    for history in histories:
        versions = history.versions()
        if not versions:
            raise history.absent(-1, versions)
        held[directory_name(history)] = versions
    return held


def directory_name(history: OperatorHistory) -> str:
    """Return the name of a store's directory: the operator's name in its query."""
    return history.url.rstrip("/").rpartition("/")[2]


def epochs_text(epochs: Sequence[int]) -> str:
    """Format a sorted list of epochs for a message."""
    return f"{epochs[0]} to {epochs[-1]}"
