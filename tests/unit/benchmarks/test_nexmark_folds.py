"""Sessions, statistics and distinct counts of bids, as the processors keep them."""

from __future__ import annotations

import random

from tests.benchmarks.nexmark.folds import (
    BIDDERS,
    COUNTED,
    NO_COUNTS,
    NO_STATISTICS,
    count_bids,
    count_seen,
    rank_of,
    sessions_with,
    statistics_with,
)


def test_bids_that_are_at_most_the_gap_apart_are_one_session() -> None:
    assert sessions_with([], [0, 10_000, 20_001]) == [(0, 20_000, 2), (20_001, 30_001, 1)]


def test_a_bid_between_two_sessions_joins_them() -> None:
    apart = sessions_with([], [0, 12_000])
    assert sessions_with(apart, [6_000]) == [(0, 22_000, 3)]


def test_sessions_do_not_depend_on_the_order_of_bids_or_on_batches() -> None:
    chance = random.Random(1)
    times = [chance.randrange(1_000_000) for _ in range(200)]
    one_by_one: list[tuple[int, int, int]] = []
    for time in times:
        one_by_one = sessions_with(one_by_one, [time])
    assert one_by_one == sessions_with(sessions_with([], times[:90]), times[90:])
    assert sum(bids for _, _, bids in one_by_one) == 200


def test_statistics_have_the_ranks_and_the_extremes_of_prices() -> None:
    statistics = statistics_with(NO_STATISTICS, [9_999, 10_000, 1_000_000])
    assert statistics_with(statistics, [5]) == (4, 2, 1, 1, 5, 1_000_000, 1_020_004)


def test_a_bidder_counts_once_for_each_rank_of_price() -> None:
    counts, seen = list(NO_COUNTS), 0
    for price in (1, 2, 2_000_000):
        count_bids(counts, [price])
        now = seen | 1 << rank_of(price)
        count_seen(counts, BIDDERS, seen, now)
        seen = now
    shown = {name: count for name, count in zip(COUNTED, counts, strict=True) if count}
    assert shown == {
        "bids": 3,
        "low": 2,
        "high": 1,
        "bidders": 1,
        "low_bidders": 1,
        "high_bidders": 1,
    }
