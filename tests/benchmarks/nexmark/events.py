"""The events of Nexmark: persons, auctions and bids, 1 : 3 : 46.

Numbers and distributions are Nexmark's usual ones, at 10,000 events a second. Event n belongs to
the epoch n // 50; the first event of an epoch is a person, the next three are auctions, the rest
are bids. Half of the bids go to a hot auction, three quarters come from a hot bidder, and three
quarters of the auctions are from a hot seller. Prices are spread over six powers of ten, evenly.

A file has a batch's events, in columns:

    event_type   0 person, 1 auction, 2 bid
    person       struct, null for other events; likewise `auction` and `bid`. Times in a struct are
                 milliseconds, because Flink does not read timestamps there
    dateTime     time of the event in milliseconds, ten events each

Source of the distributions: Tucker, Tufte, Papadimos, Maier: NEXMark, a benchmark for queries over
data streams; and the generator of Apache Beam, which set today's usual parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EVENTS_OF_EPOCH, AUCTIONS_OF_EPOCH = 50, 3
EVENTS_PER_SECOND = 10_000
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
ACTIVE_PERSONS, AUCTIONS_IN_FLIGHT, ID_LEAD = 1000, 100, 10
HOT_IDS = 100
FIRST_MILLISECONDS = 1_700_000_000_000
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Generator:
    """Generates the events of consecutive numbers. The same seed gives the same events."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def table(self, first: int, count: int) -> pa.Table:
        """The events `first` to `first + count - 1`."""
        chance = np.random.default_rng([self._seed, first])
        numbers = np.arange(first, first + count, dtype=np.int64)
        offsets = numbers % EVENTS_OF_EPOCH
        kinds = np.where(offsets < 1, 0, np.where(offsets < 1 + AUCTIONS_OF_EPOCH, 1, 2))
        makers = (_persons, _auctions, _bids)
        columns: dict[str, Any] = {"event_type": pa.array(kinds, pa.int32())}
        for kind, (name, make) in enumerate(zip(("person", "auction", "bid"), makers, strict=True)):
            is_kind = kinds == kind
            structs = make(chance, numbers[is_kind])
            places = np.where(is_kind, np.cumsum(is_kind) - 1, 0)
            columns[name] = structs.take(pa.array(places, mask=~is_kind))
        columns["dateTime"] = _times(numbers)
        return pa.table(columns)


def write_events(folder: Path, events: int, files: int, seed: int) -> None:
    """Write the events into `files` parquet files, in order. Keeps a folder that is complete."""
    generator, done = Generator(seed), folder / f"_{events}_{files}_{seed}"
    if done.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    bounds = np.linspace(0, events, files + 1).astype(int)
    for number, (first, end) in enumerate(pairwise(bounds)):
        table = generator.table(int(first), int(end - first))
        pq.write_table(table, folder / f"{number:05d}.parquet")
    done.touch()


def write_for_readers(source: Path, folder: Path, readers: int) -> None:
    """Write a file for each reader with the events of the files in `source`, dealt out in turn, in
    order. Keeps a folder that is complete."""
    files, done = sorted(source.glob("*.parquet")), folder / f"_{readers}"
    if done.exists():
        return
    folder.mkdir(exist_ok=True)
    for reader in range(readers):
        schema = pq.read_schema(files[0])
        with pq.ParquetWriter(folder / f"{reader:05d}.parquet", schema) as writer:
            for file in files[reader::readers]:
                writer.write_table(pq.read_table(file, schema=schema, partitioning=None))
    done.touch()


def _times(numbers: Numbers) -> pa.Array:
    return pa.array(_milliseconds(numbers), pa.timestamp("ms", "UTC"))


def _milliseconds(numbers: Numbers) -> Numbers:
    return FIRST_MILLISECONDS + numbers * 1000 // EVENTS_PER_SECOND


def _last_person(numbers: Numbers) -> Numbers:
    """The number of the newest person at each event."""
    return numbers // EVENTS_OF_EPOCH


def _last_auction(numbers: Numbers) -> Numbers:
    """The number of the newest auction at each event; -1 before the first auction."""
    offsets = np.clip(numbers % EVENTS_OF_EPOCH, 0, AUCTIONS_OF_EPOCH)
    return numbers // EVENTS_OF_EPOCH * AUCTIONS_OF_EPOCH + offsets - 1


def _any_person(chance: np.random.Generator, numbers: Numbers) -> Numbers:
    """Ids of persons among the newest ones, or a little ahead."""
    persons = _last_person(numbers) + 1
    active = np.minimum(persons, ACTIVE_PERSONS)
    return FIRST_ID + persons - active + chance.integers(0, active + ID_LEAD)


def _any_auction(chance: np.random.Generator, numbers: Numbers) -> Numbers:
    """Ids of auctions in flight, or a little ahead."""
    last = np.maximum(_last_auction(numbers), 0)
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    return FIRST_ID + first + chance.integers(0, last - first + 1 + ID_LEAD)


def _prices(chance: np.random.Generator, count: int) -> Numbers:
    return np.round(10 ** (chance.random(count) * 6) * 100).astype(np.int64)


def _texts(chance: np.random.Generator, count: int, length: int) -> pa.Array:
    """Random lower-case texts."""
    letters = chance.integers(ord("a"), ord("z") + 1, count * length, dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * length
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def _chosen(chance: np.random.Generator, count: int, texts: Sequence[str]) -> pa.Array:
    return pa.array(texts).take(pa.array(chance.integers(0, len(texts), count)))


def _struct(**columns: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(c) for c in columns.values()], [*columns])


def _persons(chance: np.random.Generator, numbers: Numbers) -> pa.StructArray:
    count = len(numbers)
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return _struct(
        id=FIRST_ID + _last_person(numbers),
        name=_chosen(chance, count, names),
        emailAddress=_texts(chance, count, 16),
        creditCard=_texts(chance, count, 19),
        city=_chosen(chance, count, CITIES),
        state=_chosen(chance, count, STATES),
        extra=_texts(chance, count, 110),
    )


def _auctions(chance: np.random.Generator, numbers: Numbers) -> pa.StructArray:
    count = len(numbers)
    is_hot = chance.integers(0, 4, count) > 0
    hot_seller = FIRST_ID + _last_person(numbers) // HOT_IDS * HOT_IDS
    initial = _prices(chance, count)
    # An auction is open for about as long as it takes until others take its place in flight.
    in_flight_events = AUCTIONS_IN_FLIGHT * EVENTS_OF_EPOCH // AUCTIONS_OF_EPOCH
    in_flight_ms = in_flight_events * 1000 // EVENTS_PER_SECOND
    expires = _milliseconds(numbers) + 1 + chance.integers(0, 2 * in_flight_ms, count)
    return _struct(
        id=FIRST_ID + _last_auction(numbers),
        itemName=_texts(chance, count, 20),
        description=_texts(chance, count, 100),
        initialBid=initial,
        reserve=initial + _prices(chance, count),
        expires=expires,
        seller=np.where(is_hot, hot_seller, _any_person(chance, numbers)),
        category=FIRST_CATEGORY + chance.integers(0, CATEGORIES, count),
        extra=_texts(chance, count, 300),
    )


def _bids(chance: np.random.Generator, numbers: Numbers) -> pa.StructArray:
    count = len(numbers)
    hot_auction = FIRST_ID + _last_auction(numbers) // HOT_IDS * HOT_IDS
    hot_bidder = FIRST_ID + _last_person(numbers) // HOT_IDS * HOT_IDS + 1
    is_auction_hot = chance.integers(0, 2, count) > 0
    is_bidder_hot = chance.integers(0, 4, count) > 0
    channels = [*CHANNELS * 2_500, *(f"channel-{number}" for number in range(10_000))]
    return _struct(
        auction=np.where(is_auction_hot, hot_auction, _any_auction(chance, numbers)),
        bidder=np.where(is_bidder_hot, hot_bidder, _any_person(chance, numbers)),
        price=_prices(chance, count),
        channel=_chosen(chance, count, channels),
        url=_texts(chance, count, 40),
        extra=_texts(chance, count, 20),
    )
