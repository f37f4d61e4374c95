"""The page of settings agrees with the settings in the code."""

from __future__ import annotations

from scripts.settings_page import PAGE, page_with_settings


def test_the_page_is_as_the_settings_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_settings(page), "run `python -m scripts.settings_page`"
