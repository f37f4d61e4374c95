"""The topics of the example: makes the topics, and checks that they are there.

    python topics.py [--bootstrap-servers localhost:9092]

    clicks      a message for each click
    sessions    a message for each session, compacted: Kafka keeps the newest message of each key

A session of a user ends when the user did not click for GAP_MS of event time. Clicks that come more
than DELAY_MS late are dropped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    import confluent_kafka as kafka
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError:
    sys.exit("the example needs Kafka's client: pip install 'cowstate[kafka]'")

HERE = Path(sys.argv[0]).parent
"""The directory of the example, as the user has named it."""
ADDRESS = "localhost:9092"
CLICKS, SESSIONS = "clicks", "sessions"
NOBODY = "nobody"
"""User of clicks that only move the time on, so that the sessions of others end."""
GAP_MS, DELAY_MS = 5_000, 5_000
PARTITIONS = 2
ANSWER_SECONDS = 10


def create_topics(address: str) -> None:
    """Make the topics that are missing."""
    topics_of(address)
    topics = [
        NewTopic(CLICKS, num_partitions=PARTITIONS),
        NewTopic(SESSIONS, num_partitions=PARTITIONS, config={"cleanup.policy": "compact"}),
    ]
    admin = _admin(address)  # the answers come as long as the client is there
    for created in admin.create_topics(topics).values():
        try:
            created.result()
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def check_topics(address: str) -> None:
    """Exit with a message if the broker does not answer, or if a topic is missing."""
    there = topics_of(address)
    missing = [topic for topic in (CLICKS, SESSIONS) if topic not in there]
    if missing:
        sys.exit(
            f"the broker at {address} has no topic {' and no topic '.join(missing)}: "
            f"python {HERE / 'topics.py'} --bootstrap-servers {address}"
        )


def topics_of(address: str) -> set[str]:
    """Return the names of the broker's topics. Exits with a message if the broker does not
    answer."""
    try:
        return set(_admin(address).list_topics(timeout=ANSWER_SECONDS).topics)
    except kafka.KafkaException as error:
        sys.exit(
            f"no broker answers at {address} ({error.args[0].str()}): start a broker with "
            f"`python {HERE / 'broker.py'}`, or name another with --bootstrap-servers"
        )


def _admin(address: str) -> AdminClient:
    # Without a logger, the client writes each failed attempt to the standard error.
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the topics of the example.")
    parser.add_argument("--bootstrap-servers", default=ADDRESS)
    create_topics(parser.parse_args().bootstrap_servers)
    print(f"the topics {CLICKS} and {SESSIONS} are there")


if __name__ == "__main__":
    main()
