"""Computes the state of a key from bids, for the processors of all engines. Imports no engine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

GAP_MS = 10_000
WINDOW_MS = 10_000
PRICE_BOUNDS = (10_000, 1_000_000)
"""The lowest prices of middle and high bids."""

Session = tuple[int, int, int]
"""Start and end in milliseconds, number of bids."""

SUMMED = ("bids", "low", "middle", "high", "least", "most", "sum")
"""Number of bids, of low, middle and high bids; least and greatest price, sum of the prices."""
NO_STATISTICS = (0, 0, 0, 0, 2**62, 0, 0)

COUNTED = (
    *("bids", "low", "middle", "high", "bidders", "low_bidders", "middle_bidders", "high_bidders"),
    *("auctions", "low_auctions", "middle_auctions", "high_auctions"),
)
"""Number of bids, of low, middle and high bids; the same of distinct bidders, and of auctions."""
NO_COUNTS = (0,) * len(COUNTED)
BIDDERS, AUCTIONS = 4, 8
"""Places of the numbers of bidders and of auctions."""


def sessions_with(sessions: Iterable[Session], times_ms: Iterable[int]) -> list[Session]:
    """The sessions with bids at these times. A bid joins sessions that it touches."""
    merged: list[Session] = []
    for start, end, bids in sorted([*sessions, *((t, t + GAP_MS, 1) for t in times_ms)]):
        if merged and start <= merged[-1][1]:
            first, last, before = merged[-1]
            merged[-1] = first, max(last, end), before + bids
        else:
            merged.append((start, end, bids))
    return merged


def rank_of(price: int) -> int:
    """0 for a low price, 1 for a middle price, 2 for a high price."""
    return bisect_right(PRICE_BOUNDS, price)


def statistics_with(statistics: Sequence[int], prices: Iterable[int]) -> tuple[int, ...]:
    """The statistics with bids of these prices."""
    bids, *ranks, least, most, total = statistics
    for price in prices:
        bids += 1
        ranks[rank_of(price)] += 1
        least, most, total = min(least, price), max(most, price), total + price
    return bids, *ranks, least, most, total


def count_bids(counts: list[int], prices: Iterable[int]) -> None:
    """Add bids of these prices to the numbers of bids."""
    for price in prices:
        counts[0] += 1
        counts[1 + rank_of(price)] += 1


def count_seen(counts: list[int], place: int, before: int, now: int) -> None:
    """Add a bidder or an auction to the numbers at a place. `before` and `now` have a bit for each
    rank in which the bidder or the auction has been seen."""
    counts[place] += not before
    for rank in range(3):
        counts[place + 1 + rank] += now >> rank & 1 and not before >> rank & 1
