"""The page of settings agrees with the settings in the code."""

from __future__ import annotations

import pytest

from scripts.settings_page import PAGE, page_with_settings
from spark_state.spark.session.operator_settings import SETTINGS, Setting


def test_the_page_is_as_the_settings_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_settings(page), "run `python -m scripts.settings_page`"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_a_default_is_an_allowed_value(setting: Setting) -> None:
    if setting.default is None:
        assert setting.default_shown
    else:
        setting.values.parse(setting.key, setting.default)
