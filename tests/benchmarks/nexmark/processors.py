"""The queries that are natural as a StatefulProcessor: a row API for cowstate and for Spark.

The other queries join two streams, or look at all keys of a window. Times are milliseconds, and
`dateTime` is among the columns of a processor with timers, because the watermark is of `dateTime`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from tests.benchmarks.nexmark.folds import (
    AUCTIONS,
    BIDDERS,
    COUNTED,
    NO_COUNTS,
    NO_STATISTICS,
    SUMMED,
    WINDOW_MS,
    count_bids,
    count_seen,
    rank_of,
    sessions_with,
    statistics_with,
)
from tests.benchmarks.nexmark.queries import Events
from tests.support.processors.processors import Processor

Transform = Callable[[Any, Processor, str, str, str], DataFrame]
"""Runs a processor on grouped rows. Further arguments: output schema, output mode, time mode."""


class UserSessions(Processor):
    """q11: Processor that keeps the open sessions of a bidder in a list, and a timer for the end of
    each session."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._sessions = handle.getListState("sessions", "start bigint, end bigint, bids bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = [tuple(session) for session in self._sessions.get()]
        sessions = sessions_with(before, (row.ms for row in rows))
        self._sessions.put(sessions)
        ends = {end for _, end, _ in before}
        for _, end, _ in sessions:
            if end not in ends:
                self._handle.registerTimer(end)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        now = expiredTimerInfo.getExpiryTimeInMs()
        sessions = [tuple(session) for session in self._sessions.get()]
        still_open = [session for session in sessions if session[1] > now]
        if len(still_open) < len(sessions):
            if still_open:
                self._sessions.put(still_open)
            else:
                self._sessions.clear()
        for start, end, bids in sessions:
            if end <= now:
                yield Row(bidder=key[0], bids=bids, start=start, end=end)


class BidsOfWindow(Processor):
    """q12: Processor that counts the bids of a bidder in a window, until the window has passed."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._bids = handle.getValueState("bids", "bids bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self._bids.get()
        if before is None:
            self._handle.registerTimer(key[1] + WINDOW_MS)
        bids = (before[0] if before else 0) + sum(1 for _ in rows)
        self._bids.update((bids,))
        yield Row(bidder=key[0], bids=bids, start=key[1])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        self._bids.clear()
        return iter(())


class CountsOfDay(Processor):
    """q15: Processor that counts bids, distinct bidders and distinct auctions, by price. Two maps
    have a bit for each rank of price in which a bidder or an auction was seen."""

    answer = Row("day", *COUNTED)

    def init(self, handle: Any) -> None:
        self._counts = handle.getValueState("counts", ", ".join(f"{n} bigint" for n in COUNTED))
        self._bidders = handle.getMapState("bidders", "bidder bigint", "ranks bigint")
        self._auctions = handle.getMapState("auctions", "auction bigint", "ranks bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        counts = list(self._counts.get() or NO_COUNTS)
        bidders, auctions = defaultdict[int, int](int), defaultdict[int, int](int)
        prices = []
        for row in rows:
            prices.append(row.price)
            bidders[row.bidder] |= 1 << rank_of(row.price)
            auctions[row.auction] |= 1 << rank_of(row.price)
        count_bids(counts, prices)
        seen = (BIDDERS, self._bidders, bidders), (AUCTIONS, self._auctions, auctions)
        for place, state, ranks_of in seen:
            for number, ranks in ranks_of.items():
                kept = state.getValue((number,))
                before = kept[0] if kept else 0
                if before | ranks != before:
                    state.updateValue((number,), (before | ranks,))
                    count_seen(counts, place, before, before | ranks)
        self._counts.update(tuple(counts))
        yield self.answer(*key, *counts)


class CountsOfChannel(CountsOfDay):
    """q16: CountsOfDay for each channel."""

    answer = Row("channel", "day", *COUNTED)


class AuctionStatistics(Processor):
    """q17: Processor that keeps the statistics of an auction and a day."""

    answer = Row("auction", "day", *SUMMED)

    def init(self, handle: Any) -> None:
        self._statistics = handle.getValueState(
            "statistics", ", ".join(f"{name} bigint" for name in SUMMED)
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self._statistics.get() or NO_STATISTICS
        statistics = statistics_with(before, (row.price for row in rows))
        self._statistics.update(statistics)
        yield self.answer(*key, *statistics)


class LastBid(Processor):
    """q18: Processor that keeps the last bid of a bidder for an auction."""

    answer = Row("auction", "bidder", "dateTime", "price", "channel", "url")

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState(
            "last", "dateTime bigint, price bigint, channel string, url string"
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        last = max((row.ms, row.price, row.channel, row.url) for row in rows)
        before = self._last.get()
        last = max(last, tuple(before)) if before else last
        self._last.update(last)
        yield self.answer(*key, *last)


@dataclass(frozen=True, slots=True)
class Processed:
    """A query as a processor. `keys`: the columns of a key and their expressions. `columns`: the
    other columns that the processor reads."""

    processor: type[Processor]
    keys: dict[str, str]
    columns: tuple[str, ...]
    schema: str
    mode: str = "update"
    has_timers: bool = False

    def build(self, events: Events, transform: Transform) -> DataFrame:
        bids = events.watermarked_bids() if self.has_timers else events.bids
        bids = bids.withColumn("ms", F.unix_millis("dateTime"))
        keys = [F.expr(expression).alias(name) for name, expression in self.keys.items()]
        times = ("dateTime",) if self.has_timers else ()
        rows = bids.select(*keys, *self.columns, *times)
        time_mode = "EventTime" if self.has_timers else "None"
        return transform(
            rows.groupBy(*self.keys), self.processor(), self.schema, self.mode, time_mode
        )


DAY = {"day": "date_format(dateTime, 'yyyy-MM-dd')"}
_SUMS = ", ".join(f"{name} bigint" for name in SUMMED)
_COUNTS = ", ".join(f"{name} bigint" for name in COUNTED)
_PRICED = ("bidder", "auction", "price")

PROCESSED = {
    "q11": Processed(
        UserSessions,
        {"bidder": "bidder"},
        ("ms",),
        "bidder bigint, bids bigint, start bigint, end bigint",
        "append",
        True,
    ),
    "q12": Processed(
        BidsOfWindow,
        {"bidder": "bidder", "start": f"ms - ms % {WINDOW_MS}"},
        (),
        "bidder bigint, bids bigint, start bigint",
        has_timers=True,
    ),
    "q15": Processed(CountsOfDay, DAY, _PRICED, f"day string, {_COUNTS}"),
    "q16": Processed(
        CountsOfChannel,
        {"channel": "channel", **DAY},
        _PRICED,
        f"channel string, day string, {_COUNTS}",
    ),
    "q17": Processed(
        AuctionStatistics,
        {"auction": "auction", **DAY},
        ("price",),
        f"auction bigint, day string, {_SUMS}",
    ),
    "q18": Processed(
        LastBid,
        {"auction": "auction", "bidder": "bidder"},
        ("ms", "price", "channel", "url"),
        "auction bigint, bidder bigint, dateTime bigint, price bigint, channel string, url string",
    ),
}
