"""An attempt that waits in vain for its subtask learns what the earlier attempt is doing."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import Row

from checkpoint_store.epochs.completed_checkpoint import Barrier
from spark_state.errors import FencedError
from spark_state.subtasks import subtask_session
from spark_state.subtasks.running_epoch import RunningEpoch
from spark_state.subtasks.store_session import StoreSession
from spark_state.subtasks.subtask_session import HungSubtaskError
from tests.support.operators.subtasks import OpenHost
from tests.support.processors.processors import RunningTotals

ROWS_A = [("a", 1)]


HANGS, GOES_ON = threading.Event(), threading.Event()


def wait() -> None:
    HANGS.set()
    assert GOES_ON.wait(60)


class WaitsInInit(RunningTotals):
    def init(self, handle: Any) -> None:
        super().init(handle)
        wait()


class WaitsInRows(RunningTotals):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return (Row(key=key[0], rows=1, total=1) for _ in rows if wait() is None)


class WaitsInClose(RunningTotals):
    def close(self) -> None:
        wait()


@pytest.mark.parametrize(
    ("processor", "call"),
    [
        (WaitsInInit, "WaitsInInit.init does"),
        (WaitsInRows, "WaitsInRows.handleInputRows with key ('a',) does"),
        (WaitsInClose, "WaitsInClose.close does"),
    ],
)
def test_the_call_that_hangs_is_named_with_its_key(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, processor: Any, call: str
) -> None:
    GOES_ON.set()  # opening the host calls `init`, too
    host = open_host(processor())
    monkeypatch.setattr(
        subtask_session, "_BUSY_SECONDS", 0.5 - host.spec.checkpoints.store_retry_seconds
    )
    GOES_ON.clear()
    HANGS.clear()

    def hang() -> None:
        with suppress(FencedError):
            host.epoch(0, ROWS_A)

    hanging = threading.Thread(target=hang)
    hanging.start()
    assert HANGS.wait(60)
    try:
        with pytest.raises(HungSubtaskError) as waited:
            host.epoch(0, ROWS_A, attempt=2)
    finally:
        GOES_ON.set()
        hanging.join()
    assert call in str(waited.value)


def test_an_epoch_that_is_being_completed_does_not_hang(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host()
    busy_seconds = 0.1 - host.spec.checkpoints.store_retry_seconds
    monkeypatch.setattr(subtask_session, "_BUSY_SECONDS", busy_seconds)
    complete = StoreSession.complete
    GOES_ON.clear()
    HANGS.clear()

    def complete_slowly(store: StoreSession, barrier: Barrier) -> None:
        if barrier.epoch == 0:
            wait()
        complete(store, barrier)

    monkeypatch.setattr(StoreSession, "complete", complete_slowly)
    completing = threading.Thread(target=host.epoch, args=(0, ROWS_A))
    completing.start()
    assert HANGS.wait(60)
    threading.Timer(1.0, GOES_ON.set).start()
    assert host.epoch(1, ROWS_A) == {"a": (2, 2)}
    completing.join()


def test_an_epoch_outside_its_processor_may_restore_state_or_wait(open_host: OpenHost) -> None:
    told = RunningEpoch(open_host().request(3, 7)).described()
    assert "attempt 7 of epoch 3" in told
    assert "restores state" in told
