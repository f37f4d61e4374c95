"""The test shown in the docs runs."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "test-a-processor.md"


def test_the_test_of_the_page_passes() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("```python\n")
    source, _, _ = rest.partition("```")
    assert source.count("assert") == 5
    exec(compile(source, str(PAGE), "exec"), {"__name__": "a_test"})
