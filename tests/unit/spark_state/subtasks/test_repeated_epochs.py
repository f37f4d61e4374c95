"""If a second host runs an epoch again, the epoch counts as the second host ran it.

Spark tries a task again after an error of its sink, runs a stage again if output of the stage is
lost, and a foreachBatch function may have two actions. The rows may come in another order, so the
state must be the state of the attempt whose output was sent last. In each script the next epoch
begins as soon as Spark may begin it: when the second host has sent its output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, get_args

import pytest

from checkpoint_store.epochs.completed_checkpoint import Barrier
from spark_state.host.server import _may_be_sent_early
from tests.support.operators.subtasks import Host, OpenHost, Totals, table_of, use_store
from tests.support.stores.fake_object_store import DictObjectStore

KEY = "c"
FIRST, AGAIN, NEXT = [(KEY, 1)], [(KEY, 100)], [(KEY, 1000)]
AFTER_AGAIN = {KEY: (3, 1 + 100 + 1000)}

Completed = Literal["before", "while the second host publishes"]


@dataclass
class Script:
    """Hosts of an operator with two subtasks: `first` and `again` run the subtask of KEY, `other`
    runs the other subtask. `completed`: when `other` runs, and writes a manifest with the barrier
    of `first`. `dies`: `again` is killed once, before it completes the epoch. `is_last`: `again`
    runs the next epoch, too, so it first completes the epoch."""

    first: Host
    again: Host
    other: Host
    completed: Completed
    dies: bool
    is_last: bool

    def run(self, next_epoch: Callable[[], Totals]) -> Totals:
        """Run epoch 0, and epoch 1 twice. Return the output of `next_epoch`."""
        for host in (self.first, self.other):
            host.epoch(0, FIRST)
        self.first.epoch(1, FIRST, attempt=10)
        if self.completed == "before":
            self.other.epoch(1, [], attempt=11)
        if not self._run_again(next_epoch, self.dies, attempt=12):
            self._run_again(next_epoch, dies=False, attempt=13)
        return next_epoch()

    def _run_again(self, next_epoch: Callable[[], Totals], dies: bool, attempt: int) -> bool:
        """Run epoch 1 in the second host. Return True if the output was sent."""
        session, request = self.again.session, self.again.request(1, attempt)
        assert session is not None
        accepted = session.accept(request, lambda: None)
        publish = accepted.checkpoints.publish_barrier

        def publish_after_other(barrier: Barrier) -> None:
            self.other.epoch(1, [], attempt=11)
            publish(barrier)

        is_early = False
        with closing(session.receive(request)) as received, pytest.MonkeyPatch.context() as patch:
            received.add(table_of(AGAIN, request.spec.max_parallelism).to_batches()[0])
            if dies:
                patch.setattr(session._store, "complete", _fail)
            if self.completed != "before" and attempt == 12:
                patch.setattr(accepted.checkpoints, "publish_barrier", publish_after_other)
            try:
                with session.run(accepted, received.all()) as durable, durable.output:
                    is_early = _may_be_sent_early(request, durable)
                    if is_early and not dies and not self.is_last:
                        next_epoch()
            except OSError:
                return is_early
        return True


def _fail(_: Barrier) -> None:
    raise OSError("the host is killed")


@pytest.mark.parametrize("completed", get_args(Completed))
@pytest.mark.parametrize("dies", [False, True], ids=["completes", "dies"])
@pytest.mark.parametrize("goes_on", ["first", "again", "new host", "new run"])
def test_the_next_epoch_goes_on_from_the_later_attempt(
    open_host: OpenHost,
    monkeypatch: pytest.MonkeyPatch,
    completed: Completed,
    dies: bool,
    goes_on: str,
) -> None:
    use_store(monkeypatch, DictObjectStore())
    first, again = open_host(parallelism=2), open_host(parallelism=2)
    other = open_host(parallelism=2, subtask=1)
    outputs: list[Totals] = []

    def next_epoch() -> Totals:
        if not outputs:
            host = {"first": first, "again": again}.get(goes_on)
            if host is None:
                host = open_host(parallelism=2, run_id="run-2" if goes_on == "new run" else "run-1")
            outputs.append(host.epoch(2, NEXT, attempt=20))
        return outputs[0]

    script = Script(first, again, other, completed, dies, is_last=goes_on == "again")
    assert script.run(next_epoch) == AFTER_AGAIN
