"""Random processors give the same results in cowstate as in PySpark's own in-memory runner.

A processor here is a script of calls on its states and timers when rows come and when timers fire.
The script is drawn for each example. So the processors use all states, clear states, write during
an iteration, register and delete timers, and raise errors in the middle of an epoch. A failed epoch
is rolled back and run again without the error. Between epochs the state may be restored from its
files or from a snapshot. PySpark's runner does none of this: the runner gets each epoch once.
tests/spark/operator/test_random_processors.py runs such processors in queries.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.operators.timed_epochs import TimedEpochs
from tests.support.processors.scripted_processor import (
    STATES,
    BrokenOffError,
    Script,
    Scripted,
    processing_time,
    random_script,
)
from tests.support.processors.tws_runner import TwsRunner

KEYS = "abc"
OUTPUT = pa.schema([("key", pa.string()), ("number", pa.int64()), ("seen", pa.string())])

epochs = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), st.lists(st.integers(0, 9), min_size=1, max_size=2)),
    st.integers(1, 15),
    st.sampled_from(["runs", "runs", "fails first", "restarts", "restarts from a snapshot"]),
)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    chance = draw(st.randoms(use_true_random=False))
    return random_script(chance, lines=draw(st.integers(1, 5)))


def scripted(script: Script, breaks_at: tuple[str | None, int] | None = None) -> TimedEpochs:
    return TimedEpochs(Scripted(script, processing_time, breaks_at=breaks_at), output=OUTPUT)


@examples(50)
@given(scripts(), st.lists(epochs, min_size=1, max_size=6))
def test_output_and_state_are_those_of_pyspark_s_own_runner(
    script: Script, plan: list[tuple[dict[str, list[int]], int, str]]
) -> None:
    running, now_ms = scripted(script), 0
    expected = TwsRunner(Scripted(script, processing_time), "ProcessingTime")
    for rows, passed_ms, what in plan:
        now_ms += passed_ms
        table = [(key, value) for key in sorted(rows) for value in rows[key]]
        if what.startswith("restarts"):
            running.restart(from_snapshot="snapshot" in what)
        if what == "fails first" and table:
            spec = running.spec
            running.spec = scripted(script, breaks_at=table[-1]).spec
            with pytest.raises(BrokenOffError):
                running.run(table, now_ms)
            running.backend.rollback()
            running.spec = spec
        # PySpark's runner fires timers by key, and not by time.
        assert sorted(running.epoch(table, now_ms)) == sorted(expected.epoch(table, now_ms))
    assert state_of(running) == state_in(expected)


def state_of(running: TimedEpochs) -> dict[str, Any]:
    states: dict[str, Any] = {
        state.name: running.backend.state(state) for state in running.spec.states
    }
    contents: dict[str, Any] = {}
    for key in KEYS:
        running.backend.set_current_key((key,), running.key_group(key))
        contents[key] = (
            states["value"].get(),
            list(states["list"].get()),
            sorted((tuple(k), tuple(v)) for k, v in states["map"].iterator()),
            states["$procTimers"].list(),
        )
    return contents


def state_in(expected: TwsRunner) -> dict[str, Any]:
    value, items, entries = (expected.state(state) for state in STATES)
    timers = expected.timers()
    return {
        key: (
            value.get(key),
            items.get(key, []),
            sorted(entries.get(key, {}).items()),
            timers.get(key, []),
        )
        for key in KEYS
    }
