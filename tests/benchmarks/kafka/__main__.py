"""Latency from Kafka to Kafka: an operator of cowstate beside Spark's own and a plan without state.

    python -m tests.benchmarks.kafka [--plans identity cowstate row_api] [--rows-per-second 1000]
                                     [--keys 50000] [--warm-seconds 40] [--seconds 60]
                                     [--partitions 2] [--rounds 3] [--out FILE]

A broker in KRaft mode runs on this machine, from its jars on Maven Central (checked against
broker.sha256). A client produces rows at a fixed rate, and a query with a trigger as soon as
possible on `local[2]` sends a row to another topic for each row. A row carries the producer's time.
The latency of a row ends when the client gets the query's row; producer and consumer share a clock.

    identity     a shuffle by key, and a `mapInArrow`: a plan without state
    cowstate     `transform_with_state`, heap backend, store on the local disk
    row_api      Spark's `transformWithState` on RocksDB with changelog checkpointing

Plans run in turn, each in a process of its own, `--rounds` times. The benchmark prints percentiles
of the latency after the warm-up, and the ratios to `identity`. It also checks that each row came
back at least once with the right count of its key; Kafka's sink may repeat rows.

The client is an extra: `pip install confluent-kafka`. Without the client the benchmark ends with a
message and status 0.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.kafka.broker import running_broker
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.benchmarks.kafka.in_spark import INPUT, OUTPUT, PLANS
from tests.benchmarks.latency import percentiles

PARTS_OF_A_SECOND = 100
LAST_ROWS_SECONDS = 300


@dataclass
class Client:
    """Producer of rows and consumer of the query's rows.

    `sent` counts the rows of each key. `returned` maps a row's number to the key and the count that
    came back first, and `latencies` has the milliseconds of rows that were sent after `warm_until`
    (seconds since 1970).
    """

    address: str
    sent: Counter[str] = field(default_factory=Counter)
    returned: dict[int, tuple[str, int]] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    warm_until: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def produce(self, rows_per_second: int, keys: int, seconds: float) -> None:
        """Send rows at a fixed rate, `PARTS_OF_A_SECOND` times a second."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 0})
        chance, number = random.Random(1), 0
        start = time.time()
        while (now := time.time()) < start + seconds:
            due = int((now - start) * rows_per_second)
            for row in range(number, due):
                key = f"key{chance.randrange(keys)}"
                self.sent[key] += 1
                producer.produce(INPUT, key=key, value=f"{row},{time.time()}")
            number = max(number, due)
            producer.poll(0)
            time.sleep(1 / PARTS_OF_A_SECOND)
        producer.flush()

    def consume(self) -> None:
        """Receive the query's rows until `ended` is set."""
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": self.address, "group.id": "benchmark"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([OUTPUT])
        while not self.ended.is_set():
            for message in consumer.consume(10_000, 0.005):
                if message.error() is None:
                    self._receive(message.key().decode(), message.value().decode(), time.time())
        consumer.close()

    def _receive(self, key: str, value: str, now: float) -> None:
        number, sent, *count = value.split(",")
        if int(number) in self.returned:
            return
        self.returned[int(number)] = key, int(count[0]) if count else 0
        if float(sent) > self.warm_until:
            self.latencies.append(1000 * (now - float(sent)))

    def wait_for_last_rows(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + LAST_ROWS_SECONDS
        while len(self.returned) < self.sent.total():
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{len(self.returned)} of {self.sent.total()} rows came back")
            time.sleep(0.1)

    def check_counts(self) -> None:
        """Raise SystemExit unless the rows of each key came back with the counts from 1 on."""
        counts = defaultdict(list)
        for key, count in self.returned.values():
            counts[key].append(count)
        for key, rows in self.sent.items():
            if sorted(counts[key]) != [*range(1, rows + 1)]:
                raise SystemExit(f"{key} has {rows} rows and the counts {sorted(counts[key])}")


@contextmanager
def running_query(plan: str, address: str, given: Any, folder: Path) -> Iterator[Any]:
    """Run a query in a process of its own. The process ends when its standard input is closed."""
    module = "tests.benchmarks.kafka.in_spark"
    arguments = (plan, address, str(folder), str(given.partitions))
    process = subprocess.Popen(
        (sys.executable, "-m", module, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def create_topics(address: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(name, num_partitions=partitions) for name in (INPUT, OUTPUT)]
    for created in admin.create_topics(topics).values():
        created.result()


def measure(plan: str, given: Any) -> tuple[list[float], float]:
    """The latencies of a run of a plan, and the median `addBatch`; both in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="cowstate-kafka-") as name:
        folder = Path(name)
        with running_broker(folder) as address:
            create_topics(address, given.partitions)
            client = Client(address, warm_until=time.time() + given.warm_seconds)
            consumer = threading.Thread(target=client.consume)
            consumer.start()
            try:
                with running_query(plan, address, given, folder) as process:
                    seconds = given.warm_seconds + given.seconds
                    client.produce(given.rows_per_second, given.keys, seconds)
                    client.wait_for_last_rows(process)
                    add_batch, _ = process.communicate()
            finally:
                client.ended.set()
                consumer.join()
    if plan != "identity":
        client.check_counts()
    return client.latencies, float(add_batch)


def show(plan: str, latencies: Sequence[float], add_batch: float, floor: Sequence[float]) -> None:
    middle, high, highest = percentiles(latencies)
    ratios = (
        mine / its for mine, its in zip(percentiles(latencies), percentiles(floor), strict=True)
    )
    ratio = " / ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"{plan:10} p50 {middle:.0f}, p90 {high:.0f}, p99 {highest:.0f} ms; {ratio} of the first "
        f"plan; median addBatch {add_batch:.0f} ms; {len(latencies)} rows"
    )


def main() -> None:
    parser = parser_of(
        __doc__ or "",
        "kafka",
        rows_per_second=1000,
        keys=50_000,
        warm_seconds=40.0,
        seconds=60.0,
        partitions=2,
        rounds=3,
    )
    parser.add_argument("--plans", nargs="*", choices=PLANS, default=list(PLANS))
    given = parser.parse_args()
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        print("not measured: this benchmark needs the client, pip install confluent-kafka")
        return
    latencies: dict[str, list[float]] = defaultdict(list)
    add_batches: dict[str, list[float]] = defaultdict(list)
    for _ in range(given.rounds):
        for plan in given.plans:
            of_run, add_batch = measure(plan, given)
            latencies[plan] += of_run
            add_batches[plan].append(add_batch)
    floor = latencies[given.plans[0]]
    for plan in given.plans:
        show(plan, latencies[plan], statistics.median(add_batches[plan]), floor)
    write_results(given.out, {"latencies": latencies, "add_batches": add_batches})


if __name__ == "__main__":
    main()
