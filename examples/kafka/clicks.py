"""Sends clicks to a topic, at the speed at which they happen.

    python clicks.py [--bootstrap-servers localhost:9092] [--seconds 60] [--users 50] [--seed 1]

A user clicks every one or two seconds for a while, and then is away for some time. A message has
the user as its key, and the value {"user", "page", "at_ms"}, where `at_ms` is the time of the click
in milliseconds since 1970. Messages come up to LATEST_SECONDS late, so they are out of order. The
last click comes from the user `nobody`, after a pause that ends the sessions of all other users.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import time
from collections.abc import Iterator

from topics import ADDRESS, CLICKS, DELAY_MS, GAP_MS, NOBODY, check_topics, kafka

LATEST_SECONDS = 3.0
PAGES = ("/", "/search", "/product", "/cart", "/pay")
SHARE_OF_LAST_CLICKS = 0.15


def clicks(users: int, seed: int) -> Iterator[tuple[float, str, str]]:
    """Yield endless clicks as (seconds since the start, user, page), in the order of time."""
    chance = random.Random(seed)
    due = [(chance.uniform(0, 5), f"user{number:03d}") for number in range(users)]
    heapq.heapify(due)
    while True:
        at, user = due[0]
        yield at, user, chance.choice(PAGES)
        is_last = chance.random() < SHARE_OF_LAST_CLICKS
        pause = chance.uniform(6, 20) if is_last else chance.uniform(0.2, 2.5)
        heapq.heapreplace(due, (at + pause, user))


def send(address: str, seconds: float, users: int, seed: int) -> int:
    """Send clicks for some seconds, and return their number."""
    producer = kafka.Producer({"bootstrap.servers": address, "linger.ms": 5})
    chance, number, start = random.Random(seed), 0, time.time()
    for at, user, page in clicks(users, seed):
        if at > seconds:
            break
        time.sleep(max(0.0, start + at - time.time()))
        _produce(producer, user, page, time.time() - chance.uniform(0, LATEST_SECONDS))
        number += 1
    producer.flush()
    time.sleep((GAP_MS + DELAY_MS) / 1000)
    _produce(producer, NOBODY, "/", time.time())
    producer.flush()
    return number


def _produce(producer: kafka.Producer, user: str, page: str, at_seconds: float) -> None:
    click = {"user": user, "page": page, "at_ms": int(1000 * at_seconds)}
    producer.produce(CLICKS, key=user, value=json.dumps(click))
    producer.poll(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends clicks to a topic.")
    parser.add_argument("--bootstrap-servers", default=ADDRESS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    check_topics(given.bootstrap_servers)
    sent = send(given.bootstrap_servers, given.seconds, given.users, given.seed)
    print(f"{sent:,} clicks sent")


if __name__ == "__main__":
    main()
