"""Every notebook runs from top to bottom, and is stored with the outputs that a reader sees.

`python -m tests.notebooks.test_notebooks` executes all notebooks and stores the outputs; `make
notebooks` calls this command. The output of a cell with the tag `varies` may differ from run to
run, for example in times.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
VARIES = "varies"
_CELL_SECONDS = 900


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook at `path` with the outputs of a run in `folder`, without the JVM's messages."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=_CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": folder}},
    ).execute()
    for cell in code_cells(notebook):
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}  # not the version of this Python
    return notebook


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells with code, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def varies(cell: nbformat.NotebookNode) -> bool:
    """True if the outputs of a cell may differ from run to run."""
    return VARIES in cell.metadata.get("tags", [])


def kinds(cell: nbformat.NotebookNode) -> list[Any]:
    """The kinds of a cell's outputs: the name of a stream, or the types of an object's data."""
    return [
        output.name if output.output_type == "stream" else sorted(output.data)
        for output in cell.outputs
    ]


def texts(cell: nbformat.NotebookNode) -> list[str]:
    """The texts that a cell shows, without pictures."""
    return [
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for output in cell.outputs
        if output.output_type == "stream" or "image/png" not in output.data
    ]


def main() -> None:
    """Execute and store every notebook."""
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory(prefix="cowstate-notebooks-") as folder:
            nbformat.write(executed(path, Path(folder)), path)
        print(path.name)


pytestmark = pytest.mark.notebook

NAMES = [path.stem for path in NOTEBOOKS]
README = NOTEBOOKS[0].parents[1] / "README.md"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_shows_what_its_code_gives(path: Path, tmp_path: Path) -> None:
    stored = code_cells(nbformat.read(path, as_version=4))
    ran = code_cells(executed(path, tmp_path))
    for stored_cell, cell in zip(stored, ran, strict=True):
        where = f"run `make notebooks`; the cell that differs begins {cell.source[:60]!r}"
        assert kinds(stored_cell) == kinds(cell), where
        if not varies(cell):
            assert texts(stored_cell) == texts(cell), where


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_stored_as_it_was_run_from_top_to_bottom(path: Path) -> None:
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert any("image/png" in kind for cell in cells for kind in kinds(cell))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_named_in_the_readme(path: Path) -> None:
    assert f"(notebooks/{path.name})" in README.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
