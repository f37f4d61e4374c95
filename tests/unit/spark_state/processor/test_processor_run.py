"""Each part of a RunPlan (time, steps, form of rows) can be replaced alone."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from checkpoint_store.files.key_group_range import KeyGroupRange
from spark_state.errors import OutputRowError
from spark_state.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from spark_state.processor.blocks import BlockSize
from spark_state.processor.input.epoch_time import EpochTime, ShownTime, both_times, no_time
from spark_state.processor.pandas_frames import PandasFrames
from spark_state.processor.pickles import dumps
from spark_state.processor.processor_run import Backends, ProcessorSpec, run_processor
from spark_state.processor.rows import STATE_FORMS
from tests.support.operators.subtasks import KEY_COLUMNS, operator, table_of
from tests.support.operators.timed_epochs import TimedEpochs
from tests.support.processors.processors import RunningTotals, SeesTime

FRAMES = PandasFrames("UTC", BlockSize(3, 2**31 - 1))
TIME = EpochTime(batch_ms=5_000, watermark_ms=4_000, late_watermark_ms=3_000)
Emitted = list[tuple[Any, ...]]


def spec_of(processor: Any, **changes: Any) -> ProcessorSpec:
    """Return an operator's ProcessorSpec with a changed RunPlan."""
    spec = operator(Path("unused"), processor).processor
    return replace(spec, run_plan=replace(spec.run_plan, **changes))


def new_backend() -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(KeyGroupRange(0, 7), KEY_COLUMNS, STATE_FORMS)


def emitted(
    spec: ProcessorSpec,
    backend: HeapKeyedStateBackend,
    table: pa.Table,
    time: EpochTime | None = TIME,
) -> Emitted:
    """Run an epoch, keep its state, and return its output."""
    arrived = pickle.loads(dumps(spec))
    processor = pickle.loads(arrived.pickled_processor)
    inputs = arrived.run_plan.inputs.by_name(table)
    backends = Backends(backend, OperatorStateBackend())
    with run_processor(arrived, processor, backends, inputs, time, lambda: None) as spool:
        rows = [tuple(row.values()) for batch in spool.read() for row in batch.to_pylist()]
    backend.seal()
    return rows


class TestTime:
    @pytest.mark.parametrize(
        ("shown_time", "time", "seen"),
        [
            (both_times, TIME, ("a", 5_000, 4_000)),
            (both_times, None, ("a", -1, -1)),
            (no_time, TIME, ("a", -1, -1)),
        ],
        ids=["both times", "nobody knows the time", "time mode None"],
    )
    def test_a_processor_sees_what_its_time_mode_shows(
        self, shown_time: ShownTime, time: EpochTime | None, seen: tuple[Any, ...]
    ) -> None:
        spec = spec_of(SeesTime(), shown_time=shown_time)
        assert emitted(spec, new_backend(), table_of([("a", 1)], 8), time) == [seen]


class TotalsOfFrames(RunningTotals):
    """RunningTotals in the form of transformWithStateInPandas."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        for frame in rows:
            count, total = count + len(frame), total + int(frame["value"].sum())
        self._totals.update((count, total))
        yield pd.DataFrame({"key": [key[0]], "rows": [count], "total": [total]})


class ReturnsNone(TotalsOfFrames):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Any:
        return None


class TestFormOfRows:
    ROWS = (("a", 1), ("b", 2), ("a", 10), ("c", 100))

    def test_frames_give_what_rows_give(self) -> None:
        by_rows, by_frames = (spec_of(RunningTotals()), spec_of(TotalsOfFrames(), row_form=FRAMES))
        rows, frames = new_backend(), new_backend()
        for _ in range(2):
            table = table_of(self.ROWS, 8)
            assert emitted(by_frames, frames, table) == emitted(by_rows, rows, table)

    def test_an_error_says_which_form_is_expected(self) -> None:
        spec = spec_of(ReturnsNone(), row_form=FRAMES)
        with pytest.raises(OutputRowError, match="return an iterator of DataFrames"):
            emitted(spec, new_backend(), table_of(self.ROWS, 8))


class EmitsFramesLater(TotalsOfFrames):
    """Emits the rows of a key when the key's timer fires."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        self._handle.registerTimer(10)
        return (frame[:0] for frame in super().handleInputRows(key, rows, timerValues))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        count, total = self._totals.get()
        yield pd.DataFrame({"key": [key[0]], "rows": [count], "total": [total]})
        if total < 0:
            yield pd.DataFrame({"key": [key[0]], "rows": ["few"], "total": [total]})


class TestTimersAndFrames:
    @pytest.fixture
    def epochs(self) -> TimedEpochs:
        epochs = TimedEpochs(EmitsFramesLater())
        plan = replace(epochs.spec.run_plan, row_form=FRAMES)
        epochs.spec = replace(epochs.spec, run_plan=plan)
        return epochs

    def test_timers_emit_frames_too(self, epochs: TimedEpochs) -> None:
        assert epochs.epoch([("a", 1), ("a", 2), ("b", 5)], 5) == []
        assert epochs.epoch([], 20) == [("a", 2, 3), ("b", 1, 5)]

    def test_what_a_timer_emits_is_named_with_its_key(self, epochs: TimedEpochs) -> None:
        epochs.epoch([("a", 1), ("b", -5)], 5)
        with pytest.raises(OutputRowError, match=r"'rows' with type 'object'.*key \('b',\)"):
            epochs.epoch([], 20)
