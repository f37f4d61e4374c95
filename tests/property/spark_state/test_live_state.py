"""Each reader of a live view, or of a map's epochs, sees one whole epoch that never changes.

Scripts: random epochs are applied in order, while readers are half way through any earlier epoch.
Threads: a writer commits random epochs, the view's thread applies the epochs, and reader threads
compare each view with the state committed as its epoch.
"""

from __future__ import annotations

import datetime
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_store.errors import StoreUnavailableError
from checkpoint_store.states.state_history import VersionInfo
from spark_state import live_state
from spark_state.heap import state_map_epochs
from spark_state.heap.state_map_epochs import StateMapEpoch, StateMapEpochs
from spark_state.live_state import LiveSnapshot, LiveView
from tests.support.operators.scripted_reader import Row, ScriptedReader

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("tags", pa.list_(pa.int64()))])
PATIENCE_SECONDS = 60.0

keys = st.integers(0, 30)
changes = st.dictionaries(keys, st.none() | st.integers(0, 9), max_size=12)


@dataclass
class Kept:
    """An epoch that a reader keeps, its expected content, and a reader half way through the
    epoch."""

    epoch: StateMapEpoch[int, int]
    expected: dict[int, int]
    reader: Iterator[tuple[int, int]]
    read: list[tuple[int, int]] = field(default_factory=list)

    def check(self) -> None:
        assert len(self.epoch) == len(self.expected)
        assert [self.epoch.get(key) for key in range(31)] == [
            self.expected.get(key) for key in range(31)
        ]
        self.read += islice(self.reader, 2)

    def finish(self) -> None:
        self.read += self.reader
        assert len(self.read) == len(self.expected)
        assert dict(self.read) == dict(self.epoch) == self.expected


@given(
    first=st.dictionaries(keys, st.integers(0, 9)),
    script=st.lists(st.tuples(changes, st.integers(0, 4)), max_size=25),
    most=st.sampled_from([0, 5, 30]),
)
def test_kept_epochs_agree_with_dicts_whatever_is_applied_after_them(
    first: dict[int, int], script: list[tuple[dict[int, int | None], int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_map_epochs, "LEAST_OVERLAY", most)
        epochs: StateMapEpochs[int, int] = StateMapEpochs(0, first.items())
        expected, kept = dict(first), list[Kept]()
        for number, (changed, drop) in enumerate(script, 1):
            kept.append(Kept(epochs.newest, dict(expected), iter(epochs.newest)))
            epochs.apply(number, changed)
            expected.update({key: state for key, state in changed.items() if state is not None})
            for key in [key for key, state in changed.items() if state is None]:
                expected.pop(key, None)
            assert dict(epochs.newest) == expected
            for kept_epoch in kept:
                kept_epoch.check()
            if drop < len(kept):
                kept.pop(drop).finish()
        for kept_epoch in kept:
            kept_epoch.finish()


@contextmanager
def threads_that_switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


class Writer:
    """A writer of random epochs: most epochs change little, some nearly all; some are left out.

    The store fails at times, and forgets so much that the view has to load anew.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state: dict[Row, Row] = {}
        self.reader = ScriptedReader(SCHEMA, before=self._answer)
        self.failing = False
        self.commit(0, 300)

    def commit(self, version: int, most: int) -> None:
        for _ in range(self.random.randrange(most + 1)):
            key = (self.random.randrange(400),)
            if self.random.random() < 0.3:
                self.state.pop(key, None)
            else:
                self.state[key] = (version, [version] * self.random.randrange(3))
        self.reader.commit(version, self.state)

    def run(self, view: LiveView, epochs: int) -> None:
        version = 0
        for _ in range(epochs):
            version += self.random.choice([1, 1, 1, 3])
            chance = self.random.random()
            self.failing = 0.3 < chance < 0.4
            self.commit(version, 1500 if chance < 0.1 else 20)
            if 0.2 < chance < 0.25:
                self.reader.retain(1)
            if chance > 0.5:
                self.failing = False
                view.wait_for(version, PATIENCE_SECONDS)
        self.failing = False
        view.wait_for(version, PATIENCE_SECONDS)

    def _answer(self, call: str) -> None:
        if self.failing:
            raise StoreUnavailableError(self.reader.url, call, 5, "on purpose")

    def expected(self, snapshot: LiveSnapshot) -> dict[int, dict[str, Any]]:
        """The state committed as the epoch of a snapshot."""
        at = snapshot.timestamp - datetime.datetime.fromtimestamp(0, datetime.UTC)
        info = VersionInfo(snapshot.version, at // datetime.timedelta(milliseconds=1))
        rows = self.reader.committed[info].rows
        return {key: {"n": n, "tags": tags} for (key,), (n, tags) in rows.items()}


def read_until(done: threading.Event, view: LiveView, writer: Writer, seed: int) -> Counter[str]:
    chosen, met, kept = random.Random(seed), Counter[str](), list[LiveSnapshot]()
    while not done.is_set():
        snapshot = view.snapshot()
        kept.append(snapshot)
        if len(kept) > 5:
            kept.pop(chosen.randrange(5)).close()
        for seen in (snapshot, kept[0]):
            expected = writer.expected(seen)
            assert len(seen) == len(expected)
            for key in chosen.sample(range(400), 20):
                assert seen.get(key) == expected.get(key)
            met["epochs"] += 1
        expected = writer.expected(snapshot)
        entries = list(snapshot)
        assert len(entries) == len(expected)
        assert dict(entries) == expected
        met["behind"] += view.version > snapshot.version
        met["without the store"] += view.error is not None
    return met


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_readers_see_whole_epochs_while_a_thread_applies_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_map_epochs, "LEAST_OVERLAY", 200)
    monkeypatch.setattr(live_state, "ROWS_PER_BATCH", 64)
    writer, done = Writer(seed), threading.Event()
    with (
        threads_that_switch_often(),
        LiveView(writer.reader, poll_seconds=0.001) as view,
        ThreadPoolExecutor(3) as readers,
    ):
        reading = [readers.submit(read_until, done, view, writer, seed * 10 + i) for i in range(3)]
        try:
            writer.run(view, epochs=250)
        finally:
            done.set()
        met: Counter[str] = sum((reader.result() for reader in reading), Counter())
        with view.snapshot() as last:
            assert dict(last) == writer.expected(last)
    assert met["epochs"] > 100
    assert met["behind"] > 0, "no epoch came while a reader was reading another"
    assert {"read", "changes"} <= set(writer.reader.calls)
