"""How an epoch ends: aligned, or aborted because it can no longer be.

An epoch begins with the first barrier of it that is not ignored, and ends exactly once.
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
    """How far an epoch came.

    `arrived`: the channels whose barrier is there, in the order of arrival, so the last one held an
    aligned epoch up. `waited_for`: the open channels whose barrier is not there. `buffered_bytes`:
    of records that were held back meanwhile, by their own `size_bytes`.
    """

    arrived: tuple[int, ...]
    waited_for: tuple[int, ...]
    buffered_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EpochAligned:
    """The barriers of all open channels are there: the epoch is whole."""

    epoch: int
    statistics: AlignmentStatistics


@dataclass(frozen=True, slots=True)
class EpochAborted:
    """The epoch will never be aligned; its records belong to the next one that is."""

    epoch: int
    reason: AbortReason
    statistics: AlignmentStatistics


EpochOutcome = EpochAligned | EpochAborted


def alignment_statistics(
    arrived: Iterable[int], closed: Iterable[int], channels: int
) -> AlignmentStatistics:
    """The statistics of an epoch of `channels` channels, `closed` of which have ended."""
    arrived_channels = tuple(arrived)
    waited_for = set(range(channels)).difference(arrived_channels, closed)
    return AlignmentStatistics(arrived_channels, tuple(sorted(waited_for)))
