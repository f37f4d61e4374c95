"""The checkpoint protocol with very many subtasks, each in a host of its own, on a counting store.

    python tests/benchmarks/scale.py [--parallelism 16 256 1024 10000] [--retained 1 100 1000]
                                     [--rate 300] [--handles 8] [--sample 400] [--out FILE]

Spark does not run, and there is no state: the benchmark measures only the protocol. Subtasks are
threads that run the protocol as the engine does: find the base of the epoch, write a file of
changes and the barrier, and complete the epoch. The turns of subtasks begin one after the other,
`--rate` a second, spread over at least a second, like the ends of a batch's tasks. The store is in
memory, has S3's pages of 1,000 names, and takes the time of requests to S3 (`Latencies` in
tests/support/stores/counted_store.py). For each number of subtasks and each number of retained
epochs, the benchmark measures three steps:

    epoch    an epoch of a running query
    restore  a new run with as many subtasks: until each subtask knows its files and has read a file
    rescale  a new run with twice as many subtasks

Subtasks of a restore do not interact, so only `--sample` subtasks run, and stand for all.

The benchmark prints per subtask the requests, the names in listings, and the bytes of barriers,
groups and manifests written and read; the seconds of a subtask's requests (median and most); and
the dollars of all subtasks' requests.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count, islice

from checkpoint_store.epochs.checkpoint_share import CheckpointShare
from checkpoint_store.epochs.completed_checkpoint import Barrier
from checkpoint_store.epochs.operator_layout import EpochDirectory, ManifestName
from tests.benchmarks.benchmark_script import parser_of, write_results
from tests.support.operators.lone_subtasks import LoneSubtask, Operator
from tests.support.stores.counted_store import CountedStore, Counts, Latencies, Prices

MAX_PARALLELISM = 32_768
THREADS = 256


@dataclass(frozen=True)
class Measured:
    """The cost of one step. `subtasks`: all subtasks of the run. `counted`: the subtasks that
    `counts` cover."""

    step: str
    subtasks: int
    retained: int
    counted: int
    counts: Counts
    seconds: float
    most_seconds: float

    def of_subtask(self, total: float) -> float:
        """The share of one subtask in a total."""
        return total / self.counted

    def dollars(self, prices: Prices) -> float:
        """The price of all subtasks' requests."""
        return self.of_subtask(self.counts.dollars(prices)) * self.subtasks


class Subtask(LoneSubtask):
    """A LoneSubtask whose base has `handles` files, as many as a real chain keeps: snapshots
    replace older files."""

    handles = 8

    def base(self, epoch: int) -> CheckpointShare | None:
        """See LoneSubtask."""
        share = super().base(epoch)
        if share is None:
            return None
        return replace(share, barriers=tuple(map(self._padded, share.barriers)))

    def _padded(self, barrier: Barrier) -> Barrier:
        last = barrier.handles[-1:]
        others = (replace(file, epoch=number) for file in last for number in count(10**9))
        return replace(barrier, handles=(*islice(others, self.handles - 2), *last))


class Simulation:
    """A store with `retained` epochs of an operator, and the subtasks of the operator's run."""

    def __init__(self, parallelism: int, retained: int, rate: float, sample: int) -> None:
        self.store = CountedStore(latencies=Latencies(), sleeps=False)
        self.operator = Operator("run-1", parallelism, MAX_PARALLELISM)
        self._retained = retained
        self._rate = rate
        self._sample = sample
        self._next_epoch = retained
        self._subtasks = [
            Subtask(self.store, self.operator, number) for number in range(parallelism)
        ]
        for _ in range(2):
            self._epoch(0)
        for epoch in range(retained - 1):
            name = ManifestName(epoch, 1, parallelism, f"{epoch:012x}", "s")
            self.store.fill(str(name), b"{}")
            self.store.fill(f"{EpochDirectory(epoch, 1)}/changelog-00000", b"")

    def epoch(self) -> Measured:
        """Let the query run an epoch, and measure the epoch."""
        self.store.sleeps = True
        before = self.store.counted()
        seconds = self._epoch(self._rate)
        return self._measured("epoch", len(self._subtasks), before, seconds)

    def _epoch(self, rate: float) -> list[float]:
        epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
        turns = [
            partial(subtask.run_epoch, epoch, {subtask.asked.key_groups.start: epoch})
            for subtask in self._subtasks
        ]
        return self._turns(turns, rate)

    def restored(self, step: str, parallelism: int) -> Measured:
        """Let a new run begin with a host for each subtask, and measure the restores."""
        operator = replace(self.operator, run_id=step, parallelism=parallelism)
        self.store.sleeps = False
        number_of_hosts = min(parallelism, self._sample)
        before = self.store.counted()

        def restore(number: int) -> None:
            host = Subtask(self.store, operator, number * parallelism // number_of_hosts)
            base = host.base(self._next_epoch)
            assert base.epoch == self._next_epoch - 1
            file = base.handles_for(host.asked.key_groups)[-1]
            for _ in host.checkpoints.files.states.read(file, host.asked.key_groups):
                pass

        seconds = self._turns([partial(restore, number) for number in range(number_of_hosts)], 0)
        measured = self._measured(step, parallelism, before, seconds)
        self.store.delete([info.name for info in self.store.list("runs") if step in info.name])
        return measured

    def _measured(
        self, step: str, subtasks: int, before: Counts, seconds: Sequence[float]
    ) -> Measured:
        return Measured(
            step=step,
            subtasks=subtasks,
            retained=self._retained,
            counted=len(seconds),
            counts=self.store.counted().minus(before),
            seconds=statistics.median(seconds),
            most_seconds=max(seconds),
        )

    def _turns(self, turns: Sequence[Callable[[], object]], rate: float) -> list[float]:
        """Let subtasks take their turns, `rate` a second; with rate 0, one after the other. Returns
        the seconds of each subtask's requests."""
        spread = max(1.0, len(turns) / rate) if rate else 0.0
        begin = time.monotonic()

        def take(number: int) -> float:
            time.sleep(max(0.0, begin + spread * number / len(turns) - time.monotonic()))
            before = self.store.modelled_seconds()
            turns[number]()
            return self.store.modelled_seconds() - before

        with ThreadPoolExecutor(THREADS if rate else 1) as pool:
            return [*pool.map(take, range(len(turns)))]


HEAD = (
    f"{'':8}{'subtasks':>9}{'retained':>9}{'requests':>9}{'names':>9}{'written B':>10}"
    f"{'read B':>10}{'median s':>9}{'most s':>8}{'dollars':>10}"
)


def line(measured: Measured, prices: Prices) -> str:
    """A line of the table."""
    counts, share = measured.counts, measured.of_subtask
    return (
        f"{measured.step:8}{measured.subtasks:9,}{measured.retained:9,}"
        f"{share(counts.requests):9.2f}{share(counts.listed):9.1f}"
        f"{share(counts.put_documents):10,.0f}{share(counts.got_documents):10,.0f}"
        f"{measured.seconds:9.3f}{measured.most_seconds:8.3f}{measured.dollars(prices):10.5f}"
    )


def main() -> None:
    """Run all simulations, and print the table."""
    parser = parser_of(__doc__, "scale", rate=300.0, handles=8, sample=400)
    parser.add_argument("--parallelism", type=int, nargs="*", default=[16, 256, 1024, 10_000])
    parser.add_argument("--retained", type=int, nargs="*", default=[1, 100, 1000])
    parser.add_argument("--put-dollars", type=float, default=Prices.put, help="also of a listing")
    parser.add_argument("--get-dollars", type=float, default=Prices.get)
    arguments = parser.parse_args()
    Subtask.handles = arguments.handles
    prices = Prices(arguments.put_dollars, arguments.put_dollars, arguments.get_dollars)
    results = []
    print(HEAD)
    for parallelism in arguments.parallelism:
        for retained in arguments.retained:
            simulation = Simulation(parallelism, retained, arguments.rate, arguments.sample)
            for measured in (
                simulation.epoch(),
                simulation.restored("restore", parallelism),
                simulation.restored("rescale", 2 * parallelism),
            ):
                results.append(measured)
                print(line(measured, prices), flush=True)
    documents = [asdict(m) | {"dollars": m.dollars(prices)} for m in results]
    write_results(arguments.out, documents)


if __name__ == "__main__":
    main()
