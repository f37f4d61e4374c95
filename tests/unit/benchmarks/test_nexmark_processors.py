"""Nexmark's processors give the answers of all bids, however the bids come in batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from spark_state.testing import ScriptedOperator
from tests.benchmarks.nexmark.folds import COUNTED, SUMMED, WINDOW_MS, rank_of, sessions_with
from tests.benchmarks.nexmark.processors import PROCESSED

BATCHES, BIDS_OF_BATCH = 4, 60
FIRST_MS, BATCH_MS = 1_700_000_000_000, 30_000
DAY = "2023-11-14"


@dataclass(frozen=True, slots=True)
class Bid:
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    ms: int
    day: str = DAY

    @property
    def start(self) -> int:
        return self.ms - self.ms % WINDOW_MS

    @property
    def dateTime(self) -> datetime:  # noqa: N802
        return datetime.fromtimestamp(self.ms / 1000, UTC)


def batches() -> list[list[Bid]]:
    chance = random.Random(1)
    return [
        [
            Bid(
                auction=chance.randrange(5),
                bidder=chance.randrange(6),
                price=chance.choice((5_000, 10_000, 999_999, 1_000_000)) + chance.randrange(2),
                channel=chance.choice(("Apple", "Google")),
                url=f"url{chance.randrange(1000)}",
                ms=FIRST_MS + batch * BATCH_MS + chance.randrange(BATCH_MS),
            )
            for _ in range(BIDS_OF_BATCH)
        ]
        for batch in range(BATCHES)
    ]


ALL_BIDS = [bid for batch in batches() for bid in batch]
COLUMNS = {"channel": "string", "url": "string", "day": "string", "dateTime": "timestamp"}


def run(query: str) -> list[dict[str, Any]]:
    """All rows that the query's processor emits, restarted with two subtasks after two batches. The
    last batch is empty, and has a watermark after all bids."""
    plan = PROCESSED[query]
    names = [*plan.keys, *plan.columns, *(["dateTime"] if plan.has_timers else [])]
    emitted = []
    with ScriptedOperator(
        plan.processor(),
        rows=", ".join(f"{name} {COLUMNS.get(name, 'bigint')}" for name in names),
        key=[*plan.keys],
        output=plan.schema,
        time_mode="EventTime" if plan.has_timers else "None",
        watermark=("dateTime", 4_000) if plan.has_timers else None,
    ) as operator:
        for number, bids in enumerate([*batches(), []]):
            if number == 2:
                operator.restart(parallelism=2)
            rows = [tuple(getattr(bid, name) for name in names) for bid in bids]
            emitted += operator.batch(rows, at=FIRST_MS + number * BATCH_MS)
    return [row.asDict() for row in emitted]


def last_of_key(query: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The last row of each key, without the key."""
    keys = [*PROCESSED[query].keys]
    return {
        tuple(row[key] for key in keys): tuple(row[n] for n in row if n not in keys)
        for row in run(query)
    }


def by_key(query: str, fold: Callable[[list[Bid]], Iterable[Any]]) -> dict[Any, tuple[Any, ...]]:
    """Apply the function to all bids of each key."""
    keys = [*PROCESSED[query].keys]
    of_key: dict[tuple[Any, ...], list[Bid]] = {}
    for bid in ALL_BIDS:
        of_key.setdefault(tuple(getattr(bid, key) for key in keys), []).append(bid)
    return {key: tuple(fold(bids)) for key, bids in of_key.items()}


def counts(bids: list[Bid]) -> list[int]:
    numbers = []
    for seen in (
        range(len(bids)),
        [bid.bidder for bid in bids],
        [bid.auction for bid in bids],
    ):
        ranked = [*zip(seen, (rank_of(bid.price) for bid in bids), strict=True)]
        numbers.append(len({number for number, _ in ranked}))
        numbers += [len({number for number, r in ranked if r == rank}) for rank in range(3)]
    return numbers


def sums(bids: list[Bid]) -> list[int]:
    prices = [bid.price for bid in bids]
    return [*counts(bids)[:4], min(prices), max(prices), sum(prices)]


def last(bids: list[Bid]) -> tuple[Any, ...]:
    return max((bid.ms, bid.price, bid.channel, bid.url) for bid in bids)


@pytest.mark.parametrize(
    ("query", "fold"),
    [
        ("q12", lambda bids: [len(bids)]),
        ("q15", counts),
        ("q16", counts),
        ("q17", sums),
        ("q18", last),
    ],
)
def test_the_last_row_of_a_key_is_that_of_all_its_bids(
    query: str, fold: Callable[[list[Bid]], Iterable[Any]]
) -> None:
    assert last_of_key(query) == by_key(query, fold)


def test_each_session_that_has_passed_is_emitted_once_with_all_its_bids() -> None:
    watermark = max(bid.ms for bid in ALL_BIDS) - 4_000
    expected = [
        {"bidder": bidder, "bids": bids, "start": start, "end": end}
        for bidder in {bid.bidder for bid in ALL_BIDS}
        for start, end, bids in sessions_with(
            [], [bid.ms for bid in ALL_BIDS if bid.bidder == bidder]
        )
        if end <= watermark
    ]
    assert len(expected) > 5
    assert sorted(map(str, run("q11"))) == sorted(map(str, expected))


def test_the_names_of_the_answers_are_those_of_the_folds() -> None:
    for query, names in (("q16", COUNTED), ("q17", SUMMED)):
        assert PROCESSED[query].schema.endswith(", ".join(f"{name} bigint" for name in names))
