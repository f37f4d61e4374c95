"""Queries of Nexmark, as plans of Spark that run on a stream and on a batch.

The same plan on a batch gives the expected answer. A query in output mode update emits a row for
each change of a key; the last row of a key counts. A query in output mode append emits a window
when the watermark has passed the window, so the newest windows are missing on a stream.

Spark refuses some of the plans on a stream: a second aggregation without a window (q4), ranks (q9,
q19) and distinct counts (q15, q16). Other engines run these queries, and their answers are compared
with the plan on a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

DELAY = "4 seconds"


@dataclass(frozen=True, slots=True)
class Events:
    """The events of the site, as a stream or as a batch."""

    events: DataFrame

    def _of(self, kind: str) -> DataFrame:
        of_kind = self.events.where(F.col(kind).isNotNull()).select(f"{kind}.*", "dateTime")
        return of_kind.drop("extra")

    @property
    def persons(self) -> DataFrame:
        return self._of("person")

    @property
    def auctions(self) -> DataFrame:
        return self._of("auction")

    @property
    def bids(self) -> DataFrame:
        return self._of("bid")

    def watermarked_bids(self) -> DataFrame:
        return self.bids.withWatermark("dateTime", DELAY)


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `keys`: the columns that identify a row of the answer, of which the last row counts;
    no columns if each row counts."""

    build: Callable[[Events], DataFrame]
    mode: str
    keys: tuple[str, ...] = ()


def local_items(events: Events) -> DataFrame:
    """q3: who sells in these states in a category?"""
    sellers = events.persons.where(F.col("state").isin("OR", "ID", "CA"))
    sellers = sellers.select(F.col("id").alias("person"), "name", "city", "state")
    auctions = events.auctions.where("category = 10").select("id", "seller")
    return auctions.join(sellers, F.expr("seller = person")).select("name", "city", "state", "id")


def _bids_while_open(events: Events) -> DataFrame:
    """Each auction with the bids from its opening to its end."""
    bids = events.bids.withColumnRenamed("dateTime", "bidTime")
    is_open = F.expr("id = auction AND bidTime BETWEEN dateTime AND timestamp_millis(expires)")
    return events.auctions.join(bids, is_open)


def prices_of_categories(events: Events) -> DataFrame:
    """q4: the average of the final prices of a category."""
    final = _bids_while_open(events).groupBy("id", "category").agg(F.max("price").alias("final"))
    return final.groupBy("category").agg(F.avg("final").alias("average"))


def hot_items(events: Events) -> DataFrame:
    """q5: the auction with the most bids in each sliding window."""
    window = F.window("dateTime", "10 seconds", "2 seconds")
    counts = events.watermarked_bids().groupBy(window, "auction").agg(F.count("*").alias("bids"))
    hottest = F.max(F.struct("bids", "auction")).alias("hottest")
    return counts.groupBy("window").agg(hottest).select("window.start", "hottest.*")


def highest_bid(events: Events) -> DataFrame:
    """q7: the highest bid of each window."""
    highest = F.max(F.struct("price", "auction", "bidder")).alias("highest")
    window = F.window("dateTime", "10 seconds")
    return (
        events.watermarked_bids().groupBy(window).agg(highest).select("window.start", "highest.*")
    )


def new_sellers(events: Events) -> DataFrame:
    """q8: persons who opened an auction in the window in which they came."""
    window = F.window("dateTime", "10 seconds").alias("window")
    came = events.persons.withWatermark("dateTime", DELAY).groupBy(window, "id", "name").count()
    opened = events.auctions.withWatermark("dateTime", DELAY).groupBy(window, "seller").count()
    came = came.select(F.col("window").alias("came"), "id", "name")
    opened = opened.select("window", "seller")
    both = came.join(opened, F.expr("id = seller AND came = window"))
    return both.select("id", "name", "window.start")


def winning_bids(events: Events) -> DataFrame:
    """q9: the highest bid of each auction, and the earliest of equal bids."""
    best = Window.partitionBy("id").orderBy(F.desc("price"), "bidTime", "bidder", "url")
    ranked = _bids_while_open(events).withColumn("place", F.row_number().over(best))
    return ranked.where("place = 1").select(
        "id", "seller", "category", "bidder", "price", "bidTime"
    )


def user_sessions(events: Events) -> DataFrame:
    """q11: the bids of each bidder until the bidder rests for ten seconds."""
    session = F.session_window("dateTime", "10 seconds").alias("session")
    counts = events.watermarked_bids().groupBy("bidder", session).agg(F.count("*").alias("bids"))
    return counts.select("bidder", "bids", "session.start", "session.end")


def bids_of_windows(events: Events) -> DataFrame:
    """q12, with the time of events, because no two runs have the same processing time."""
    window = F.window("dateTime", "10 seconds")
    counts = events.watermarked_bids().groupBy(window, "bidder").agg(F.count("*").alias("bids"))
    return counts.select("bidder", "bids", "window.start")


RANKS = {
    "low": "price < 10000",
    "middle": "price >= 10000 AND price < 1000000",
    "high": "price >= 1000000",
}
DAY = "yyyy-MM-dd"


def _bids_by_rank() -> Iterator[Column]:
    """The number of bids, and of bids of each rank of price."""
    yield F.count("*").alias("bids")
    for rank, condition in RANKS.items():
        yield F.count(F.expr(f"CASE WHEN {condition} THEN 1 END")).alias(rank)


def _distinct_by_rank(column: str) -> Iterator[Column]:
    """The distinct values of a column, and those of bids of each rank of price."""
    yield F.countDistinct(column).alias(f"{column}s")
    for rank, condition in RANKS.items():
        of_rank = F.expr(f"CASE WHEN {condition} THEN {column} END")
        yield F.countDistinct(of_rank).alias(f"{rank}_{column}s")


def _distinct_counts(events: Events, *keys: str) -> DataFrame:
    grouped = events.bids.groupBy(*keys, F.date_format("dateTime", DAY).alias("day"))
    distinct = (*_distinct_by_rank("bidder"), *_distinct_by_rank("auction"))
    return grouped.agg(*_bids_by_rank(), *distinct)


def counts_of_days(events: Events) -> DataFrame:
    """q15: bids, distinct bidders and distinct auctions of each day, by price."""
    return _distinct_counts(events)


def counts_of_channels(events: Events) -> DataFrame:
    """q16: the same for each channel and day."""
    return _distinct_counts(events, "channel")


def auction_statistics(events: Events) -> DataFrame:
    """q17: prices of each auction and day."""
    day = F.date_format("dateTime", DAY).alias("day")
    return events.bids.groupBy("auction", day).agg(
        *_bids_by_rank(),
        F.min("price").alias("least"),
        F.max("price").alias("most"),
        F.sum("price").alias("sum"),
    )


def last_bids(events: Events) -> DataFrame:
    """q18: the last bid of each bidder for each auction."""
    last = F.max(F.struct("dateTime", "price", "channel", "url")).alias("last")
    return events.bids.groupBy("auction", "bidder").agg(last).select("auction", "bidder", "last.*")


def highest_bids(events: Events) -> DataFrame:
    """q19: the ten highest bids of each auction, with their places."""
    best = Window.partitionBy("auction").orderBy(F.desc("price"), "dateTime", "bidder", "url")
    return events.bids.withColumn("place", F.row_number().over(best)).where("place <= 10")


def bids_of_category(events: Events) -> DataFrame:
    """q20: bids with their auction, in a category."""
    auctions = events.auctions.where("category = 10").withColumnRenamed("dateTime", "opened")
    return events.bids.join(auctions, F.expr("auction = id")).drop("auction")


QUERIES = {
    "q3": Query(local_items, "append"),
    "q4": Query(prices_of_categories, "update", ("category",)),
    "q5": Query(hot_items, "append"),
    "q7": Query(highest_bid, "append"),
    "q8": Query(new_sellers, "append"),
    "q9": Query(winning_bids, "update", ("id",)),
    "q11": Query(user_sessions, "append"),
    "q12": Query(bids_of_windows, "update", ("bidder", "start")),
    "q15": Query(counts_of_days, "update", ("day",)),
    "q16": Query(counts_of_channels, "update", ("channel", "day")),
    "q17": Query(auction_statistics, "update", ("auction", "day")),
    "q18": Query(last_bids, "update", ("auction", "bidder")),
    "q19": Query(highest_bids, "update", ("auction", "place")),
    "q20": Query(bids_of_category, "append"),
}
