"""The checkpoint protocol with very many subtasks, each in a host of its own, on a store that is
counted. Spark does not run, and there is no state: what is measured is the protocol.

    python tests/benchmarks/scale.py [--parallelism 16 256 1024 10000] [--retained 1 100 1000]
                                     [--rate 400] [--handles 8] [--out FILE] [--plot FILE]

Subtasks are threads that run the protocol as the engine does: what the epoch starts from, a file of
changes, the barrier, and completing the epoch. They begin their turns one after the other, `--rate`
a second, and at least within a second, as the tasks of a batch end. The store is in memory, has
S3's pages of 1,000 names, and takes the time that requests to S3 take (`Latencies` in
tests/support/counted_store.py). For each number of subtasks p and each number of epochs that the
store retains, three things are measured:

    epoch    an epoch of a query that runs
    restore  a new run with as many subtasks: until each one knows its files, and has read one
    rescale  a new run with twice as many subtasks

Printed are, for a subtask, its requests, the names that listings show it, and the bytes of barriers,
groups and manifests that it writes and reads; the seconds that a subtask takes (median and most);
and the dollars of the requests of all. `before` is what the protocol took that it replaced, in which
each subtask listed the barriers of all, and read the manifest of all: computed, not run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from checkpoint_store.files.state_handle import StateHandle
from checkpoint_store.operators.checkpoint_share import CheckpointShare
from checkpoint_store.operators.operator_layout import EpochDirectory, ManifestName
from tests.support.counted_store import NO_LATENCIES, CountedStore, Counts, Latencies, Prices
from tests.support.lone_subtasks import LoneSubtask, Operator

MAX_PARALLELISM = 32_768
THREADS = 256
CHANGED = {group: 1 for group in range(MAX_PARALLELISM)}


@dataclass(frozen=True)
class Measured:
    """What one step took, of `subtasks` subtasks in all."""

    step: str
    subtasks: int
    retained: int
    counts: Counts
    seconds: float
    most_seconds: float

    def of_subtask(self, total: float) -> float:
        """The share of a subtask."""
        return total / self.subtasks


class Subtask(LoneSubtask):
    """Keeps as many files as `handles`: a snapshot would have replaced the older ones."""

    handles = 8

    def base(self, epoch: int) -> CheckpointShare | None:
        """See LoneSubtask."""
        share = super().base(epoch)
        if share is None:
            return None
        return replace(share, barriers=tuple(map(self._shortened, share.barriers)))

    def _shortened(self, barrier: Any) -> Any:
        return replace(barrier, handles=barrier.handles[-self.handles + 1 :])


class Simulation:
    """A store with `retained` epochs of an operator, and the subtasks of its run."""

    def __init__(self, parallelism: int, retained: int, rate: float) -> None:
        self.store = CountedStore()
        self.operator = Operator("run-1", parallelism, MAX_PARALLELISM)
        self.retained = retained
        self._rate = rate
        self.epoch = retained
        self._subtasks = self._hosts(self.operator)
        self._fill()

    def _hosts(self, operator: Operator) -> list[Subtask]:
        return [Subtask(self.store, operator, number) for number in range(operator.parallelism)]

    def _fill(self) -> None:
        """Retained epochs as listings show them, and one as it is."""
        self._turns([lambda s=s: s.run_epoch(self.epoch - 1, CHANGED) for s in self._subtasks], 0)
        for epoch in range(self.retained - 1):
            name = ManifestName(epoch, 1, self.operator.parallelism, f"{epoch:012x}", 1, "s")
            self.store.fill(str(name), b"{}")
            self.store.fill(f"{EpochDirectory(epoch, 1)}/changelog-00000", b"")

    def epochs(self, number: int) -> Measured:
        """Let the query run epochs."""
        measured = []
        for _ in range(number):
            epoch, self.epoch = self.epoch, self.epoch + 1
            turns = [lambda s=s: s.run_epoch(epoch, CHANGED) for s in self._subtasks]
            measured.append(self._measured("epoch", turns))
        return measured[-1]

    def restored(self, step: str, run_id: str, parallelism: int) -> Measured:
        """Let a new run begin, with a host for each subtask."""
        operator = replace(self.operator, run_id=run_id, parallelism=parallelism)

        def restore(number: int) -> None:
            host = Subtask(self.store, operator, number)
            base = host.base(self.epoch)
            assert base is not None
            assert base.epoch == self.epoch - 1
            handles: Sequence[StateHandle] = base.handles_for(host.asked.key_groups)
            for _ in host.checkpoints.read_state(handles[-1], host.asked.key_groups):
                pass

        return self._measured(step, [lambda n=n: restore(n) for n in range(parallelism)])

    def _measured(self, step: str, turns: Sequence[Callable[[], None]]) -> Measured:
        before = self.store.counted()
        seconds = self._turns(turns, self._rate)
        return Measured(
            step=step,
            subtasks=len(turns),
            retained=self.retained,
            counts=self.store.counted().minus(before),
            seconds=statistics.median(seconds),
            most_seconds=max(seconds),
        )

    def _turns(self, turns: Sequence[Callable[[], None]], rate: float) -> list[float]:
        """Let subtasks take their turns, so many a second; 0: as fast as they can, and requests
        take no time. Returns how long each one took."""
        self.store.latencies = Latencies() if rate else NO_LATENCIES
        spread = max(1.0, len(turns) / rate) if rate else 0.0
        begin = time.monotonic()
        waiting, numbers = threading.Lock(), count()

        def take(_: int) -> float:
            with waiting:
                number = next(numbers)
                due = begin + spread * number / len(turns)
                time.sleep(max(0.0, due - time.monotonic()))
            started = time.monotonic()
            turns[number]()
            return time.monotonic() - started

        with ThreadPoolExecutor(THREADS if rate else 1) as pool:
            return list(pool.map(take, range(len(turns))))


def before(measured: Measured, document_bytes: float) -> dict[str, float]:
    """What a subtask took in the protocol before: it listed the retained manifests and read the
    newest; it put a file and a barrier; it listed the epoch's files and barriers; the last one read
    them all. `document_bytes`: of a barrier."""
    subtasks, retained = measured.subtasks, measured.retained
    pages = -(-retained // 1000) + -(-2 * subtasks // 1000)
    return {
        "requests": 4 + pages,
        "listed": retained + 2 * subtasks,
        "read": subtasks * document_bytes,
    }


def line(measured: Measured, prices: Prices) -> str:
    """A line of the table."""
    counts, share = measured.counts, measured.of_subtask
    return (
        f"{measured.step:8} {measured.subtasks:7,} {measured.retained:9,}"
        f" {share(counts.requests):9.2f} {share(counts.puts):6.2f} {share(counts.gets):6.2f}"
        f" {share(counts.lists):6.2f} {share(counts.listed):9.1f}"
        f" {share(counts.put_documents):9,.0f} {share(counts.got_documents):9,.0f}"
        f" {measured.seconds:7.3f} {measured.most_seconds:7.3f} {counts.dollars(prices):10.5f}"
    )


HEAD = (
    f"{'':8} {'subtasks':>7} {'retained':>8} {'requests':>9} {'puts':>6} {'gets':>6} {'lists':>6}"
    f" {'names':>9} {'written B':>9} {'read B':>9} {'median s':>7} {'most s':>6} {'dollars':>10}"
)


def main() -> None:
    """Run all simulations, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--parallelism", type=int, nargs="*", default=[16, 256, 1024, 10_000])
    parser.add_argument("--retained", type=int, nargs="*", default=[1, 100, 1000])
    parser.add_argument("--rate", type=float, default=400.0, help="subtasks that begin a second")
    parser.add_argument("--handles", type=int, default=8, help="files of a subtask's state")
    parser.add_argument("--put-dollars", type=float, default=Prices.put, help="also of a listing")
    parser.add_argument("--get-dollars", type=float, default=Prices.get)
    parser.add_argument("--out", type=Path, help="a file for the numbers, as JSON")
    parser.add_argument("--plot", type=Path, help="a file for a plot, by matplotlib")
    arguments = parser.parse_args()
    Subtask.handles = arguments.handles
    prices = Prices(arguments.put_dollars, arguments.put_dollars, arguments.get_dollars)
    results = []
    print(HEAD)
    for parallelism in arguments.parallelism:
        for retained in arguments.retained:
            simulation = Simulation(parallelism, retained, arguments.rate)
            for measured in (
                simulation.epochs(2),
                simulation.restored("restore", "run-2", parallelism),
                simulation.restored("rescale", "run-3", 2 * parallelism),
            ):
                results.append(measured)
                print(line(measured, prices), flush=True)
    if arguments.out is not None:
        documents = [
            {**asdict(measured), "dollars": measured.counts.dollars(prices)} for measured in results
        ]
        arguments.out.write_text(json.dumps(documents, indent=1))


if __name__ == "__main__":
    main()
