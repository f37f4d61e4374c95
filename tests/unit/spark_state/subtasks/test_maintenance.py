"""Few threads run the jobs of many stores in turn, one job of a store at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from spark_state.subtasks.maintenance import FairThreads


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    fair = FairThreads(2, "fair")
    yield fair
    fair.close()


class Gate:
    """A job that ends only after the gate has opened."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.opened.wait(60)


def test_jobs_of_a_store_run_in_order_one_at_once(threads: FairThreads) -> None:
    ran: list[int] = []
    running = threading.Lock()

    def job(number: int) -> Callable[[], int]:
        def run() -> int:
            assert running.acquire(blocking=False)
            ran.append(number)
            running.release()
            return number

        return run

    futures = [threads.submit("a", job(number)) for number in range(50)]
    assert [future.result(60) for future in futures] == ran == list(range(50))


def test_a_store_whose_job_is_long_does_not_delay_another_one(threads: FairThreads) -> None:
    gate = Gate()
    long = threads.submit("a", gate)
    waiting = threads.submit("a", int)
    assert threads.submit("b", lambda: "done").result(60) == "done"
    assert gate.begun.wait(60)
    assert not waiting.done()
    gate.opened.set()
    assert (long.result(60), waiting.result(60)) == (None, 0)


def test_stores_take_turns_when_all_threads_are_busy(threads: FairThreads) -> None:
    gates = Gate(), Gate()
    ran: list[str] = []
    busy = [threads.submit(store, gate) for store, gate in zip("xy", gates, strict=True)]
    assert all(gate.begun.wait(60) for gate in gates)
    names = [f"a{n}" for n in range(4)] + [f"b{n}" for n in range(2)]
    jobs: list[Future[None]] = [
        threads.submit(name[0], lambda name=name: ran.append(name))  # type: ignore[misc]
        for name in names
    ]
    gates[0].opened.set()
    for job in jobs:
        job.result(60)
    assert ran == ["a0", "b0", "a1", "b1", "a2", "a3"]
    gates[1].opened.set()
    assert [future.result(60) for future in busy] == [None, None]


def test_no_more_jobs_run_at_once_than_there_are_threads(threads: FairThreads) -> None:
    gates = [Gate() for _ in range(3)]
    jobs = [threads.submit(str(number), gate) for number, gate in enumerate(gates)]
    assert gates[0].begun.wait(60)
    assert gates[1].begun.wait(60)
    assert not gates[2].begun.wait(0.2)
    for gate in gates:
        gate.opened.set()
    assert [job.result(60) for job in jobs] == [None, None, None]


def test_a_job_that_waits_may_be_cancelled_and_one_that_fails_delays_nobody(
    threads: FairThreads,
) -> None:
    gate = Gate()
    first = threads.submit("a", gate)
    cancelled = threads.submit("a", lambda: pytest.fail("it was cancelled"))
    failing = threads.submit("a", lambda: 1 // 0)
    last = threads.submit("a", lambda: "last")
    assert gate.begun.wait(60)
    assert not first.cancel()
    assert cancelled.cancel()
    gate.opened.set()
    with pytest.raises(ZeroDivisionError):
        failing.result(60)
    assert last.result(60) == "last"


def test_closing_waits_for_jobs_that_wait() -> None:
    threads = FairThreads(1, "fair")
    gate = Gate()
    ran: list[str] = []
    threads.submit("a", gate)
    for name in ("a", "a", "b"):
        threads.submit(name, lambda name=name: ran.append(name))  # type: ignore[misc]
    assert gate.begun.wait(60)
    closing = threading.Thread(target=threads.close)
    closing.start()
    gate.opened.set()
    closing.join(60)
    assert not closing.is_alive()
    assert sorted(ran) == ["a", "a", "b"]
