"""Every page of the documentation can be reached from its first page."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
LINK = re.compile(r"\]\(([^)#\s]+\.md)")


def linked_by(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text())}


def test_the_first_page_links_every_page_but_those_that_an_index_links() -> None:
    first, decisions = DOCS / "index.md", DOCS / "decisions" / "index.md"
    assert {*DOCS.rglob("*.md")} == {first, *linked_by(first), *linked_by(decisions)}
