"""Writes the table of docs/reference/configuration.md from the settings of operators.

python -m scripts.settings_page
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from spark_state.spark.session.operator_configuration import (
    STORE_KEY,
    SessionFacts,
    parse_configuration,
)
from spark_state.spark.session.operator_settings import SETTINGS, Setting
from spark_state.spark.session.setting_values import PREFIX
from spark_state.spark.session.store_options import STORE_OPTIONS_PREFIX

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "configuration.md"
BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->"
DEFAULTS = parse_configuration(
    {STORE_KEY: "s3://bucket"}, SessionFacts("local", 1, 1, speculation=False)
)
_HEADER = "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n"
_STORE_OPTIONS = (
    f"| `{STORE_OPTIONS_PREFIX}<name>` | none | JSON or text | an [option for the "
    "client](../how-to/store-on-s3.md) of the store, and of that of `restoreFrom`. A secret is "
    "allowed if `spark.redaction.regex` matches its key |\n"
)


def page_with_settings(page: str) -> str:
    """The text of the page, with a table of the present settings."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{_HEADER}{''.join(map(_row, SETTINGS))}{_STORE_OPTIONS}{END}{after}"


def _row(setting: Setting) -> str:
    default = setting.default_shown or _shown_default(setting)
    key = f"`{PREFIX}{setting.key}`"
    return f"| {key} | {default} | {setting.values.allowed} | {setting.meaning} |\n"


def _shown_default(setting: Setting) -> str:
    default = attrgetter(setting.field)(DEFAULTS)
    if default is None:
        return "none"
    text = str(default).lower()
    return f"`{text}`" if text.isalpha() else f"{text} {setting.unit}".rstrip()


if __name__ == "__main__":
    PAGE.write_text(page_with_settings(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
