"""Test that stores of earlier releases stay readable. `write_store.py` wrote each store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_state.subtasks.maintenance import Maintenance
from tests.compatibility.write_store import EPOCHS, PROCESSORS, ROWS
from tests.support.operators.subtasks import Host, operator

FOLDER = Path(__file__).parent
# The output of each key for an epoch that adds the value 1 once more.
EMITTED = {"totals": (EPOCHS + 1, EPOCHS + 1), "collections": (EPOCHS + 1, 1)}
FIXTURES = [
    (states, path)
    for states, folder in (("totals", "stores"), ("collections", "collections"))
    for path in sorted((FOLDER / folder).iterdir())
]


@pytest.mark.parametrize(
    ("states", "fixture"), FIXTURES, ids=[f"{states}-{path.name}" for states, path in FIXTURES]
)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_store_of_a_release_restores_and_goes_on(
    states: str, fixture: Path, parallelism: int, tmp_path: Path
) -> None:
    shutil.copytree(fixture, tmp_path / "store")
    spec = operator(tmp_path / "store", PROCESSORS[states](), parallelism=parallelism)
    emitted: dict[str, tuple[int, int]] = {}
    with Maintenance() as maintenance:
        for subtask in range(parallelism):
            emitted |= Host(spec, subtask, "run-2").open(maintenance).epoch(EPOCHS, ROWS)
    assert emitted == {key: EMITTED[states] for key, _ in ROWS}
