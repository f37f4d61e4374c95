"""Refuses misspelled keys of settings: Spark takes any key, so a misspelled key has no effect."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from spark_state.errors import ConfigurationError
from spark_state.spark.session.operator_settings import SETTING_OF
from spark_state.spark.session.setting_values import PREFIX
from spark_state.spark.session.store_options import STORE_OPTIONS_PREFIX

_ONE_LETTER_OF_PREFIX = 0.92
_OF_SECRETS = re.compile("(?i)secret|password|token|credential|access.?key|options")


def check_keys(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an unknown key below PREFIX, and for a key whose prefix is
    almost PREFIX. The error names the nearest key."""
    for key, text in sorted(settings.items()):
        first, second, name = [*key.split(".", 2), "", ""][:3]
        scope = f"{first}.{second}."
        if not name or key.startswith(STORE_OPTIONS_PREFIX):
            continue
        if name not in SETTING_OF if scope == PREFIX else _is_close(scope.lower(), PREFIX):
            raise _unknown(key, text, name)


def _is_close(text: str, other: str) -> bool:
    return bool(difflib.get_close_matches(text, [other], cutoff=_ONE_LETTER_OF_PREFIX))


def _unknown(key: str, text: str, name: str) -> ConfigurationError:
    near = difflib.get_close_matches(name, SETTING_OF, n=1)
    shown = f"{key} is set" if _OF_SECRETS.search(key) else f"{key} is {text[:100]!r}"
    hint = (
        f"did you mean {PREFIX}{near[0]}?"
        if near
        else f"the keys are {', '.join(PREFIX + each for each in SETTING_OF)}, and "
        f"{STORE_OPTIONS_PREFIX}<name>"
    )
    return ConfigurationError(f"{shown}, and there is no such setting: {hint}")
