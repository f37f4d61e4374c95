"""The one epoch of all operators of a query: the newest that all of them have.

Operators of a query that runs are not at the same epoch at every moment, and what one had after an
epoch belongs to what the others had after the same one. An operator that its query has dropped
stays at an old epoch for ever, and nobody means that one who asks for the newest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_store.operators.operator_history import OperatorHistory
from spark_state.errors import ConfigurationError

# How far one operator of a query that runs may be ahead of another one.
_EPOCHS_APART = 2


def shared_epoch(
    url: str,
    histories: Sequence[OperatorHistory],
    epochs: Mapping[str, Sequence[int]],
    way_out: str,
) -> int:
    """The newest epoch that all operators below `url` have; `epochs`: what epochs_of has found.

    Raises ConfigurationError if there is none, or if an operator lags so that it is an old one; and
    what epochs_of raises.
    """
    shared = _newest_of_all(url, epochs, way_out)
    ahead = max(epochs, key=lambda operator: epochs[operator][-1])
    newest = epochs[ahead][-1]
    if newest - shared > _EPOCHS_APART:
        # The query may have gone on while its operators were looked at one by one.
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
