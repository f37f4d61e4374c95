"""Operator state is complete in a new run after a stop at any write.

Two subtasks note the values of three epochs. The process ends at a write. A new run begins with the
unfinished epoch in new hosts, also at another parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint_store.objects.object_store import ObjectStore
from spark_state.subtasks.maintenance import Maintenance
from tests.support.operators.operator_states import NotesValues, held_by
from tests.support.operators.subtasks import Host, operator, use_store
from tests.support.stores.fake_object_store import (
    STOP_MODES,
    DictObjectStore,
    StopMode,
    Stopped,
    StoppingObjectStore,
)

pytestmark = pytest.mark.fault

EPOCHS = 3
KEYS = "abcdefgh"


class ScriptedRuns:
    """Runs of the operator on one store."""

    def __init__(
        self, folder: Path, maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._folder = folder
        self._maintenance = maintenance
        self._monkeypatch = monkeypatch

    def run(self, store: ObjectStore, run_id: str, first: int, parallelism: int = 2) -> list[int]:
        """Run the epochs from `first` on, and return the values that all subtasks have noted at the
        end."""
        with self._monkeypatch.context() as patched:
            use_store(patched, store)
            spec = operator(self._folder, NotesValues(), parallelism=parallelism)
            self.finished = first
            hosts = [
                Host(spec, subtask, run_id).open(self._maintenance)
                for subtask in range(parallelism)
            ]
            for epoch in range(first, EPOCHS):
                rows = [(key, 10 * epoch + number + 1) for number, key in enumerate(KEYS)]
                for host in hosts:
                    host.epoch(epoch, rows)
                self.finished = epoch + 1
        return sorted(value for host in hosts for value in held_by(host).noted)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedRuns]:
    with Maintenance() as maintenance:
        yield ScriptedRuns(tmp_path, maintenance, monkeypatch)


ALL = sorted(10 * epoch + n + 1 for epoch in range(EPOCHS) for n in range(len(KEYS)))


@pytest.mark.parametrize("mode", STOP_MODES)
def test_a_run_after_a_stop_has_each_item_once(script: ScriptedRuns, mode: StopMode) -> None:
    counting = StoppingObjectStore(DictObjectStore(), stop_at=0, mode=mode)
    assert script.run(counting, "run-a", 0) == ALL
    assert counting.writes > 12
    for stop_at in range(1, counting.writes + 1):
        objects = DictObjectStore()
        stopping = StoppingObjectStore(objects, stop_at, mode)
        with pytest.raises(Stopped):
            script.run(stopping, "run-a", 0)
        parallelism = 1 + stop_at % 3
        assert script.run(objects, "run-b", script.finished, parallelism) == ALL
