"""Operator state of real subtasks agrees with a model over restarts at any parallelism up to 16.

Each epoch of a subtask may run in another host, and may fail once before it succeeds.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_state.subtasks.maintenance import Maintenance
from tests.support.examples import examples
from tests.support.operators.operator_states import Held, NotesValues, held_by
from tests.support.operators.subtasks import Host, operator

MOST = 16
KEYS = [f"k{number}" for number in range(24)]
Run = tuple[int, list[list[int]]]


class Model:
    """The expected operator state of each subtask."""

    def __init__(self) -> None:
        self.subtasks: list[Held] = []

    def begin_run(self, parallelism: int) -> None:
        before = self.subtasks
        counts = [count for held in before for count in held.counts]
        if len(before) == parallelism:
            lists = [held.noted for held in before]
        else:
            lists = [[] for _ in range(parallelism)]
            for place, item in enumerate(item for held in before for item in held.noted):
                lists[place % parallelism].append(item)
        self.subtasks = [Held(list(noted), list(counts)) for noted in lists]

    def epoch(self, subtask: int, values: list[int]) -> None:
        held = self.subtasks[subtask]
        noted = [value for value in values if value]
        counts = [noted[-1]] if noted else held.counts
        self.subtasks[subtask] = Held(held.noted + noted, counts)


class SeparateRuns:
    """Runs in a separate store. `restless`: each epoch runs in a new host."""

    def __init__(self, folder: Path, maintenance: Maintenance, restless: bool) -> None:
        self._folder = folder
        self._maintenance = maintenance
        self._restless = restless
        self._model = Model()
        self._epoch = 0
        self._runs = 0
        self._attempt = 1

    def host(self, parallelism: int, subtask: int) -> Host:
        spec = operator(self._folder, NotesValues(), parallelism=parallelism, max_parallelism=MOST)
        run_id = f"run-{self._runs:03d}"
        return Host(spec, subtask, run_id).open(self._maintenance)

    def run(self, parallelism: int, epochs: list[list[int]]) -> None:
        self._runs += 1
        self._model.begin_run(parallelism)
        hosts = [self.host(parallelism, subtask) for subtask in range(parallelism)]
        for values in epochs:
            rows = [(key, value) for key, value in zip(KEYS, values, strict=False)]
            for subtask, host in enumerate(hosts):
                if self._restless:
                    host = self.host(parallelism, subtask)
                self.epoch_of(host, rows)
            self._epoch += 1

    def epoch_of(self, host: Host, rows: list[tuple[str, int]]) -> None:
        own = [(key, value) for key, value in rows if host.own_key(key)]
        self._attempt += 2
        if own and any(value % 3 == 1 for _, value in own):
            failing = [*own[:-1], (own[-1][0], -1)]
            with pytest.raises(ValueError, match="a negative value"):
                host.epoch(self._epoch, failing, self._attempt)
        host.epoch(self._epoch, own, self._attempt + 1)
        self._model.epoch(host.subtask, [value for _, value in sorted(own)])
        assert held_by(host) == self._model.subtasks[host.subtask]


parallelisms = st.integers(1, MOST)
epochs = st.lists(st.lists(st.integers(0, 100), max_size=len(KEYS)), min_size=1, max_size=2)


@examples(10)
@given(st.lists(st.tuples(parallelisms, epochs), min_size=2, max_size=4), st.booleans())
def test_every_subtask_holds_what_counting_by_hand_says(runs: list[Run], restless: bool) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with Maintenance() as maintenance:
            script = SeparateRuns(folder, maintenance, restless)
            for parallelism, values in runs:
                script.run(parallelism, values)
    finally:
        shutil.rmtree(folder)
