"""Every page of the documentation can be reached from its first page."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
LINK = re.compile(r"\]\(([^)#\s]+\.md)")


def test_the_first_page_links_every_page_but_the_decisions() -> None:
    linked = {(DOCS / target).resolve() for target in LINK.findall((DOCS / "index.md").read_text())}
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert pages - linked == {DOCS / "index.md"}
