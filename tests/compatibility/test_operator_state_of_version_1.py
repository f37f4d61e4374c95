"""Operator state of format version 1 stays readable. `write_operator_state.py` wrote the files."""

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
    main,
    positions,
    watermark,
)
from tests.support.stores.stored_forms import forms_in

FIXTURES = Path(__file__).parent / "version_1" / "operator_state"


@pytest.mark.parametrize("parallelism", [1, 3])
def test_operator_state_is_restored(parallelism: int) -> None:
    snapshots = [path.read_bytes() for path in sorted(FIXTURES.iterdir())]
    assert len(snapshots) == SUBTASKS
    dealt = []
    for subtask in range(parallelism):
        backend = OperatorStateBackend.restore(snapshots, subtask, parallelism)
        dealt += backend.list_state("positions", POSITIONS).get()
        union = backend.union_state("watermark", WATERMARK).get()
        assert union == [watermark(subtask) for subtask in range(SUBTASKS)]
        assert backend.broadcast_state("options", NAME, OPTION).items() == OPTIONS
    assert dealt == [item for subtask in range(SUBTASKS) for item in positions(subtask)]


def test_operator_state_is_written_in_the_form_of_version_1(tmp_path: Path) -> None:
    main(tmp_path / "operator_state")
    assert forms_in(tmp_path / "operator_state") == forms_in(FIXTURES)
