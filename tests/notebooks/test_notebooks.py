"""Test that every notebook runs from top to bottom, and is stored with its output."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.notebooks.executed_notebook import (
    NOTEBOOKS,
    code_cells,
    executed,
    kinds,
    texts,
    varies,
)

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
