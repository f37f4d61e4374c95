"""Stored notebooks: executed, with the outputs that the cells show to a reader.

`python -m tests.notebooks.executed_notebook` executes all notebooks and stores the outputs; `make
notebooks` calls this command. The output of a cell with the tag `varies` may differ from run to
run, for example in times.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
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


if __name__ == "__main__":
    main()
