"""Every notebook runs from top to bottom, draws what it promises, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.notebook

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_notebook_runs_and_draws_a_picture(path: Path, tmp_path: Path) -> None:
    notebook = read(path)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.source for cell in code if cell.outputs or cell.execution_count] == []
