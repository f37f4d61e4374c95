"""Operator state of earlier releases stays readable. `write_operator_state.py` wrote the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_state.operator_state.operator_state_backend import OperatorStateBackend
from tests.compatibility.write_operator_state import (
    NAME,
    OPTION,
    OPTIONS,
    POSITIONS,
    SUBTASKS,
    WATERMARK,
    positions,
    watermark,
)

FIXTURES = Path(__file__).parent / "operator_state"


@pytest.mark.parametrize("release", sorted(path.name for path in FIXTURES.iterdir()))
@pytest.mark.parametrize("parallelism", [1, 3])
def test_operator_state_of_a_release_is_restored(release: str, parallelism: int) -> None:
    snapshots = [path.read_bytes() for path in sorted((FIXTURES / release).iterdir())]
    assert len(snapshots) == SUBTASKS
    dealt = []
    for subtask in range(parallelism):
        backend = OperatorStateBackend.restore(snapshots, subtask, parallelism)
        dealt += backend.list_state("positions", POSITIONS).get()
        union = backend.union_state("watermark", WATERMARK).get()
        assert union == [watermark(subtask) for subtask in range(SUBTASKS)]
        assert backend.broadcast_state("options", NAME, OPTION).items() == OPTIONS
    assert dealt == [item for subtask in range(SUBTASKS) for item in positions(subtask)]
