"""The queries of `processors` as KeyedProcessFunctions of PyFlink, with the same states and timers.

A function gets one row at a time, and emits a row for it. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from pyflink.table import StreamTableEnvironment, Table

from tests.benchmarks.nexmark.flink_queries import DAY
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

LONG, TEXT = Types.LONG(), Types.STRING()


class UserSessions(KeyedProcessFunction):
    """q11: Function on rows (bidder, time)."""

    def open(self, context: Any) -> None:
        kind = Types.TUPLE([LONG, LONG, LONG])
        self._sessions = context.get_list_state(ListStateDescriptor("sessions", kind))

    def process_element(self, row: Any, context: Any) -> None:
        before = [tuple(session) for session in self._sessions.get() or ()]
        sessions = sessions_with(before, (context.timestamp(),))
        self._sessions.update(sessions)
        ends = {end for _, end, _ in before}
        for _, end, _ in sessions:
            if end not in ends:
                context.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Row]:
        sessions = [tuple(session) for session in self._sessions.get() or ()]
        still_open = [session for session in sessions if session[1] > timestamp]
        if len(still_open) < len(sessions):
            if still_open:
                self._sessions.update(still_open)
            else:
                self._sessions.clear()
        for start, end, bids in sessions:
            if end <= timestamp:
                yield Row(context.get_current_key(), bids, start, end)


class BidsOfWindow(KeyedProcessFunction):
    """q12: Function on rows (bidder, start of the window, time)."""

    def open(self, context: Any) -> None:
        self._bids = context.get_state(ValueStateDescriptor("bids", LONG))

    def process_element(self, row: Any, context: Any) -> Iterator[Row]:
        before = self._bids.value()
        if before is None:
            context.timer_service().register_event_time_timer(row[1] + WINDOW_MS)
        bids = (before or 0) + 1
        self._bids.update(bids)
        yield Row(row[0], row[1], bids)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Row]:
        self._bids.clear()
        return iter(())


class DistinctCounts(KeyedProcessFunction):
    """q15, q16: Function on rows (key …, bidder, auction, price, time)."""

    def open(self, context: Any) -> None:
        counts = Types.TUPLE([LONG] * len(COUNTED))
        self._counts = context.get_state(ValueStateDescriptor("counts", counts))
        self._bidders = context.get_map_state(MapStateDescriptor("bidders", LONG, LONG))
        self._auctions = context.get_map_state(MapStateDescriptor("auctions", LONG, LONG))

    def process_element(self, row: Any, context: Any) -> Iterator[Row]:
        *key, bidder, auction, price, _ = row
        counts = list(self._counts.value() or NO_COUNTS)
        count_bids(counts, (price,))
        seen = (BIDDERS, self._bidders, bidder), (AUCTIONS, self._auctions, auction)
        for place, state, number in seen:
            before = state.get(number) or 0
            now = before | 1 << rank_of(price)
            if now != before:
                state.put(number, now)
                count_seen(counts, place, before, now)
        self._counts.update(tuple(counts))
        yield Row(*key, *counts)


class AuctionStatistics(KeyedProcessFunction):
    """q17: Function on rows (auction, day, price, time)."""

    def open(self, context: Any) -> None:
        kind = Types.TUPLE([LONG] * len(SUMMED))
        self._statistics = context.get_state(ValueStateDescriptor("statistics", kind))

    def process_element(self, row: Any, context: Any) -> Iterator[Row]:
        statistics = statistics_with(self._statistics.value() or NO_STATISTICS, (row[2],))
        self._statistics.update(statistics)
        yield Row(row[0], row[1], *statistics)


class LastBid(KeyedProcessFunction):
    """q18: Function on rows (auction, bidder, price, channel, url, time)."""

    def open(self, context: Any) -> None:
        kind = Types.TUPLE([LONG, LONG, TEXT, TEXT])
        self._last = context.get_state(ValueStateDescriptor("last", kind))

    def process_element(self, row: Any, context: Any) -> Iterator[Row]:
        last = context.timestamp(), row[2], row[3], row[4]
        before = self._last.value()
        last = max(last, tuple(before)) if before else last
        self._last.update(last)
        yield Row(row[0], row[1], *last)


@dataclass(frozen=True, slots=True)
class Processed:
    """A query as a function. `columns`: SQL of the columns that the function reads, without the
    time, the columns of the key first. `key`: their names in the answer, and their types. `answer`:
    the further columns of the answer."""

    function: type[KeyedProcessFunction]
    columns: tuple[str, ...]
    key: dict[str, Any]
    answer: dict[str, Any]


START_MS = f"""
    TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', CAST(`dateTime` AS TIMESTAMP(0)))
    / {WINDOW_MS // 1000} * CAST({WINDOW_MS} AS BIGINT)
"""
_COUNTS = dict.fromkeys(COUNTED, LONG)
_PRICED = ("bidder", "auction", "price")

PROCESSED = {
    "q11": Processed(
        UserSessions, ("bidder",), {"bidder": LONG}, dict.fromkeys(("bids", "start", "end"), LONG)
    ),
    "q12": Processed(
        BidsOfWindow,
        ("bidder", START_MS),
        {"bidder": LONG, "start": LONG},
        {"bids": LONG},
    ),
    "q15": Processed(DistinctCounts, (DAY, *_PRICED), {"day": TEXT}, _COUNTS),
    "q16": Processed(
        DistinctCounts, ("channel", DAY, *_PRICED), {"channel": TEXT, "day": TEXT}, _COUNTS
    ),
    "q17": Processed(
        AuctionStatistics,
        ("auction", DAY, "price"),
        {"auction": LONG, "day": TEXT},
        dict.fromkeys(SUMMED, LONG),
    ),
    "q18": Processed(
        LastBid,
        ("auction", "bidder", "price", "channel", "url"),
        {"auction": LONG, "bidder": LONG},
        {"dateTime": LONG, "price": LONG, "channel": TEXT, "url": TEXT},
    ),
}


def processed(tables: StreamTableEnvironment, query: str) -> Table:
    """The answers of a query's function."""
    plan = PROCESSED[query]
    bids = tables.sql_query(f"SELECT {', '.join(plan.columns)}, `dateTime` FROM bids")
    width = len(plan.key)
    kinds = [*plan.key.values()]
    keyed = tables.to_data_stream(bids).key_by(
        (lambda row: row[0]) if width == 1 else (lambda row: (row[0], row[1])),
        key_type=kinds[0] if width == 1 else Types.TUPLE(kinds),
    )
    answer = {**plan.key, **plan.answer}
    kind = Types.ROW_NAMED([*answer], [*answer.values()])
    return tables.from_data_stream(keyed.process(plan.function(), output_type=kind))
