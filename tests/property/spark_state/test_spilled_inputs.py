"""Epochs with spilled input equal epochs with input in memory in every way.

Both operators get the same batches. One operator gets its rows in pieces; each piece is written to
the local disk and merged in parts of the smallest size. The scripts cover rows, pandas and Arrow,
an initial state, timers in both time modes, values that expire, late rows, and a restart at another
parallelism. The processors remember the order of a key's rows.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from spark_state import ArrowStatefulProcessor
from spark_state.processor.input.spilled_rows import SpilledRows
from spark_state.subtasks.epoch_attempt import EpochAttempt
from spark_state.subtasks.subtask_session import DurableEpoch, SubtaskSession
from spark_state.testing import ScriptedOperator, ScriptedPandasOperator

ROWS, OUTPUT = "key string, value long, at timestamp", "key string, kind string, digest long"
INITIAL = "start long, key string"


class _Spilling:
    """A session that spills its input in pieces."""

    def __init__(self, session: SubtaskSession, chance: random.Random) -> None:
        self._session = session
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @contextmanager
    def run(self, attempt: EpochAttempt, table: pa.Table) -> Iterator[DurableEpoch]:
        if not table.num_rows:
            with self._session.run(attempt, table) as epoch:
                yield epoch
            return
        plan = attempt.spec.processor.run_plan
        part_bytes = self._chance.choice([1, 100, 10_000])
        spilled = SpilledRows(plan.inputs, plan.event_times, tempfile.gettempdir(), part_bytes)
        first = 0
        while first < table.num_rows:
            length = self._chance.randint(1, 8)
            spilled.spill(table.slice(first, length))
            first += length
        with closing(spilled), self._session.run(attempt, spilled) as epoch:
            yield epoch


class _Spilled(ScriptedOperator):
    """A ScriptedOperator whose sessions spill their input."""

    chance = random.Random(0)

    def restart(self, **changes: Any) -> None:
        super().restart(**changes)
        sessions: list[Any] = [_Spilling(session, self.chance) for session in self._sessions]
        self._sessions = sessions


class _SpilledPandas(_Spilled, ScriptedPandasOperator):
    """A ScriptedPandasOperator whose sessions spill their input."""


def mixed(digest: int, values: list[int]) -> int:
    """Mix values into a digest that depends on their order."""
    for value in values:
        digest = (digest * 31 + value) % 1_000_003
    return digest


class Digests(StatefulProcessor):
    """A processor that emits Row(key, kind, digest) for the rows of a key. A timer emits the digest
    again, and entries of a list expire."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._digest = handle.getValueState("digest", "n long")
        self._values = handle.getListState("values", "n long", self._ttl_ms)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for start in self.starts(initialState):
            self._digest.update((mixed(self.held(), [start]),))

    def starts(self, state: Any) -> list[int]:
        return [state.start]

    def held(self) -> int:
        return self._digest.get()[0] if self._digest.exists() else 1

    def handled(self, key: Any, values: list[int], timerValues: Any) -> tuple[str, str, int]:
        digest = mixed(self.held(), values)
        self._digest.update((digest,))
        self._values.appendList([(value,) for value in values])
        if digest % 2:
            now_ms = timerValues.getCurrentProcessingTimeInMs()
            watermark_ms = timerValues.getCurrentWatermarkInMs()
            self._handle.registerTimer(max(now_ms, watermark_ms) + 1_500)
        return key[0], "rows", digest

    def fired(self, key: Any) -> tuple[str, str, int]:
        return key[0], "timer", mixed(self.held(), [row[0] for row in self._values.get()])

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        key, kind, digest = self.handled(key, [row.value for row in rows], timerValues)
        yield Row(key=key, kind=kind, digest=digest)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expired: Any) -> Iterator[Row]:
        key, kind, digest = self.fired(key)
        yield Row(key=key, kind=kind, digest=digest)

    def close(self) -> None:
        pass


def frame(row: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame([row], columns=["key", "kind", "digest"])


class DigestsOfFrames(Digests):
    """The digests of rows in DataFrames."""

    def starts(self, state: Any) -> list[int]:
        return [*state["start"]]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        values = [int(value) for given in rows for value in given["value"]]
        yield frame(self.handled(key, values, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expired: Any) -> Any:
        yield frame(self.fired(key))


class DigestsInArrow(ArrowStatefulProcessor):
    """The digests of rows in Arrow, with many keys in a call."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._digest = handle.getValueState("digest", "n long", self._ttl_ms)

    def handleInitialBatch(self, batch: Any, timerValues: Any) -> None:
        self._mixed(batch, "start")

    def handleInputBatch(self, batch: Any, timerValues: Any) -> Iterator[pa.Table]:
        digests = self._mixed(batch, "value")
        kinds = pa.array(["rows"] * len(batch.keys))
        yield batch.keys.table.append_column("kind", kinds).append_column("digest", digests)

    def _mixed(self, batch: Any, column: str) -> pa.Array[Any]:
        before = self._digest.get_many(batch.keys).field("n").fill_null(1).to_pylist()
        values = np.split(batch.rows[column].to_numpy(), batch.starts[1:])
        digests = pa.array(
            [mixed(old, of_key.tolist()) for old, of_key in zip(before, values, strict=True)]
        )
        self._digest.put_many(batch.keys, pa.table({"n": digests}))
        return digests

    def close(self) -> None:
        pass


rows = st.tuples(st.sampled_from("abcdeé"), st.integers(0, 9), st.integers(0, 6_000))
batches = st.lists(st.lists(rows, max_size=30), min_size=1, max_size=4)
FORMS: dict[str, tuple[Any, type[ScriptedOperator], type[ScriptedOperator]]] = {
    "rows": (Digests, ScriptedOperator, _Spilled),
    "pandas": (DigestsOfFrames, ScriptedPandasOperator, _SpilledPandas),
    "arrow": (DigestsInArrow, ScriptedOperator, _Spilled),
}


def told(
    operator: ScriptedOperator, script: list[list[Any]], initial: list[Any], time_mode: str
) -> list[Any]:
    """The whole result of a script: output, late rows, state, timers."""
    with operator:
        if initial:
            operator.begin_with(initial, rows=INITIAL, key="key")
        seen: list[Any] = []
        for number, batch in enumerate(script):
            given_rows = [
                (key, value, pd.Timestamp(at_ms + 2_000 * number, unit="ms", tz="UTC"))
                for key, value, at_ms in batch
            ]
            seen.append([tuple(row) for row in operator.batch(given_rows, at=2_000 * number)])
            if number == 1:
                operator.restart(parallelism=2)
        return [*seen, operator.state("digest"), operator.timers()]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("time_mode", ["ProcessingTime", "EventTime", "None"])
@settings(max_examples=15)
@given(batches, st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abz")), max_size=12))
def test_a_spilled_input_comes_to_the_same(
    form: str, time_mode: str, script: list[list[Any]], initial: list[Any]
) -> None:
    processor, in_memory, spilled = FORMS[form]
    if form != "arrow" and time_mode == "None":
        processor = without_timers(processor)
    ttl_ms = 3_000 if time_mode == "ProcessingTime" else None
    arguments: dict[str, Any] = {
        "rows": ROWS,
        "key": "key",
        "output": OUTPUT,
        "time_mode": time_mode,
        "watermark": ("at", 1_000) if time_mode == "EventTime" else None,
    }
    expected = told(in_memory(processor(ttl_ms), **arguments), script, initial, time_mode)
    assert told(spilled(processor(ttl_ms), **arguments), script, initial, time_mode) == expected


def without_timers(processor: type[Digests]) -> Any:
    """Build the processor without timers, for time mode "None"."""

    class WithoutTimers(processor):  # type: ignore[misc, valid-type]
        def handled(self, key: Any, values: list[int], timerValues: Any) -> tuple[str, str, int]:
            self._digest.update((mixed(self.held(), values),))
            return key[0], "rows", self.held()

    return WithoutTimers
