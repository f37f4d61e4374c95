"""The page of the Python API agrees with the docstrings."""

from __future__ import annotations

from scripts.api_page import PAGE, api_page


def test_the_page_is_as_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == api_page(), "run `python -m scripts.api_page`"


def test_a_signature_shows_types_and_literal_defaults() -> None:
    page = api_page()
    assert "list(directory: str, prefix: str = '') -> Sequence[ObjectInfo]" in page
    assert "(forms: Forms = ...)" in page
    assert "self" not in page.partition("```python")[2].partition("```")[0]
