"""If a second host runs an epoch again, the epoch counts as the second host ran it.

Spark tries a task again after an error of its sink, runs a stage again if output of the stage is
lost, and a foreachBatch function may have two actions. The rows may come in another order, so the
state must be the state of the attempt whose output was sent last. In each script the next epoch
begins as soon as Spark may begin it: when the second host has sent its output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal, get_args

import pytest

from checkpoint_store.epochs.completed_checkpoint import Barrier
from spark_state.host.server import _may_be_sent_early
from tests.support.operators.subtasks import Host, OpenHost, Totals, table_of, use_store
from tests.support.stores.fake_object_store import DictObjectStore

KEY = "c"
FIRST, AGAIN, NEXT = [(KEY, 1)], [(KEY, 100)], [(KEY, 1000)]
AFTER_AGAIN = {KEY: (3, 1 + 100 + 1000)}

Cause = Literal["the task is tried again", "the stage runs again", "the function has two actions"]


@dataclass
class Script:
    """Hosts of an operator with two subtasks: `first` and `again` run the subtask of KEY, `other`
    runs the other subtask. `dies`: `again` is killed once, before it completes the epoch.
    `is_last`: `again` runs the next epoch, too, so it first completes the epoch.
    `is_completed`: the epoch has a manifest."""

    first: Host
    again: Host
    other: Host
    cause: Cause
    dies: bool
    is_last: bool = False
    is_completed: bool = False

    def run(self, next_epoch: Callable[[], Totals]) -> Totals:
        """Run epoch 0, and epoch 1 twice. Return the output of `next_epoch`."""
        for host in (self.first, self.other):
            host.epoch(0, FIRST)
        self.first.epoch(1, FIRST, attempt=10)
        if self.cause == "the stage runs again":
            self._complete_without_again()
        return self._run_again(next_epoch, self.dies, attempt=12)

    def _run_again(self, next_epoch: Callable[[], Totals], dies: bool, attempt: int) -> Totals:
        session, request = self.again.session, self.again.request(1, attempt)
        assert session is not None
        is_retry = self.cause == "the task is tried again" or attempt > 12
        request = replace(request, task=replace(request.task, is_retry=is_retry))
        accepted = session.accept(request, self._complete_without_again)
        is_early = has_failed = False
        with closing(session.receive(request)) as received, pytest.MonkeyPatch.context() as patch:
            received.add(table_of(AGAIN, request.spec.max_parallelism).to_batches()[0])
            if dies:
                patch.setattr(session._store, "complete", _fail)
            try:
                with session.run(accepted, received.all()) as durable, durable.output:
                    is_early = _may_be_sent_early(request, durable)
                    if is_early and not dies and not self.is_last:
                        return self._when_sent(next_epoch)
            except OSError:
                has_failed = True
        if has_failed and not is_early:
            return self._run_again(next_epoch, dies=False, attempt=attempt + 1)
        return self._when_sent(next_epoch)

    def _complete_without_again(self) -> None:
        """Run the other subtask, while `again` runs, if it has not run: the epoch is complete."""
        if not self.is_completed:
            self.is_completed = True
            self.other.epoch(1, [], attempt=11)

    def _when_sent(self, next_epoch: Callable[[], Totals]) -> Totals:
        if self.cause == "the function has two actions":
            # The driver looks when the function has returned, see epoch_completion.
            run = self.first.checkpoints.runs.registered("run-1")
            assert run is not None
            assert self.first.checkpoints.completion.missing_subtasks(1, run, 2) == ()
        return next_epoch()


def _fail(_: Barrier) -> None:
    raise OSError("the host is killed")


@pytest.fixture(params=[0, 1], ids=["completes", "dies"])
def script(
    request: pytest.FixtureRequest, open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> Script:
    use_store(monkeypatch, DictObjectStore())
    first, again, other = (
        open_host(parallelism=2),
        open_host(parallelism=2),
        open_host(parallelism=2, subtask=1),
    )
    return Script(first, again, other, "the task is tried again", bool(request.param))


@pytest.mark.parametrize("cause", get_args(Cause))
@pytest.mark.parametrize("goes_on", ["first", "again", "new host", "new run"])
def test_the_next_epoch_goes_on_from_the_later_attempt(
    script: Script, open_host: OpenHost, cause: Cause, goes_on: str
) -> None:
    def next_epoch() -> Totals:
        if goes_on == "first":
            host = script.first
        elif goes_on == "again":
            host = script.again
        else:
            host = open_host(parallelism=2, run_id="run-2" if goes_on == "new run" else "run-1")
        return host.epoch(2, NEXT, attempt=20)

    script.cause, script.is_last = cause, goes_on == "again"
    assert script.run(next_epoch) == AFTER_AGAIN
