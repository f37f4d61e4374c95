"""Outcome of an epoch: aligned, or aborted because the epoch can no longer be aligned.

An epoch begins with its first barrier that is not ignored, and ends exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

AbortReason = Literal[
    "newer barrier",
    "newer epoch aligned",
    "channel ended",
    "input ended",
    "too many pending epochs",
]


@dataclass(frozen=True, slots=True)
class AlignmentStatistics:
    """Progress of an epoch's alignment.

    - `arrived`: channels whose barrier has arrived, in the order of arrival. An aligned epoch
      waited longest for the last of these channels.
    - `waited_for`: open channels whose barrier has not arrived.
    """

    arrived: tuple[int, ...]
    waited_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EpochAligned:
    """Outcome of a whole epoch: the barriers of all open channels have arrived."""

    epoch: int
    statistics: AlignmentStatistics


@dataclass(frozen=True, slots=True)
class EpochAborted:
    """Outcome of an epoch that will never be aligned. Its records belong to the next aligned
    epoch."""

    epoch: int
    reason: AbortReason
    statistics: AlignmentStatistics


EpochOutcome = EpochAligned | EpochAborted


def alignment_statistics(
    arrived: Iterable[int], closed: Iterable[int], channels: int
) -> AlignmentStatistics:
    """Return the statistics of an epoch. `channels`: number of channels. `closed`: ended
    channels."""
    arrived_channels = tuple(arrived)
    waited_for = set(range(channels)).difference(arrived_channels, closed)
    return AlignmentStatistics(arrived_channels, tuple(sorted(waited_for)))
