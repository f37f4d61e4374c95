"""`spark.cowstate.storeOptions.<name>`: options for the client of an operator's store.

A value that is valid JSON is parsed as JSON (8, true, "a text", {"region_name": "eu"}); any other
value is a text. The options travel to executors with the operator, and cowstate never shows the
options. Spark shows each setting, unless the setting's name matches `spark.redaction.regex`. A
secret that Spark would show is refused. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from checkpoint_store.objects.secret_options import secret_options
from spark_state.errors import ConfigurationError

STORE_OPTIONS_PREFIX = "spark.cowstate.storeOptions."
REDACTION_KEY = "spark.redaction.regex"
REDACTION_OF_SPARK = "(?i)secret|password|token|access[.]?key"


def store_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """The options in the settings of a session. Raises ConfigurationError, without the value, for a
    secret that Spark would show."""
    given = {
        key: _value(text) for key, text in settings.items() if key.startswith(STORE_OPTIONS_PREFIX)
    }
    redacted = settings.get(REDACTION_KEY, REDACTION_OF_SPARK)
    for key, value in given.items():
        name = key.removeprefix(STORE_OPTIONS_PREFIX)
        if not name:
            raise ConfigurationError(f"{key} names no option: write {key}<name of the option>")
        if secret_options({name: value}) and not _matches(redacted, key):
            raise ConfigurationError(
                f"{key} looks like a secret, and Spark would show it: {REDACTION_KEY}, which says "
                f"which settings Spark does not show, is {redacted!r}. Set it to "
                f"{redacted + '|storeOptions'!r} where the application starts, or let the client "
                "find its credentials in the environment of the executors"
            )
    return {key.removeprefix(STORE_OPTIONS_PREFIX): value for key, value in given.items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _matches(redacted: str, key: str) -> bool:
    """Return True if Spark redacts a setting. False if the regular expression is valid only in
    Java."""
    try:
        return re.search(redacted, key) is not None
    except re.error:
        return False
