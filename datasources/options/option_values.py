"""Parses the texts of options: each function takes the name and the text, and returns the value.

    time        whole milliseconds since 1970, or ISO 8601 ("2026-01-31", "2026-01-31 12:00:00",
                "2026-01-31T12:00:00+01:00"); a time without a zone is in UTC
    size        bytes; the number may end in k, m, g or t (powers of 1024)
    duration    seconds
    list        separated by commas

A column name with a comma, or with a space at an end, is quoted as in Spark: `a,b`, with `` for a
backtick. Any other text raises a ConfigurationError that lists the allowed values.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable
from typing import Any

from spark_state.errors import ConfigurationError
from spark_state.spark.session.setting_values import shared_url, whole_number

_MOST = 2**63 - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_SIZE = re.compile(r"([0-9]+)([kmgt]?)b?", re.IGNORECASE)
_QUOTED = re.compile(r"`(?:[^`]|``)+`")
_COLUMN = re.compile(rf"\s*(?:{_QUOTED.pattern}|[^`,\s][^`,]*)")
_COLUMNS = re.compile(rf"{_COLUMN.pattern}\s*(?:,{_COLUMN.pattern}\s*)*")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _bad(name: str, text: str, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"option {name} is {text!r}; allowed are {allowed}")


def integer(low: int, high: int = _MOST) -> Callable[[str, str], int]:
    """The parser of whole numbers from `low` to `high`."""
    return lambda name, text: whole_number(f"option {name}", text, low, high)


def choice(*allowed: str) -> Callable[[str, str], str]:
    """The parser of texts that are one of `allowed`, in upper or lower case."""

    def parse(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise _bad(name, text, ", ".join(allowed))
        return word

    return parse


def a_first_version(name: str, text: str) -> int | str:
    """Parse a version: a whole number, "earliest" or "latest"."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    try:
        return integer(0)(name, text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}, earliest, latest") from None


def _unquoted(text: str) -> str:
    return text[1:-1].replace("``", "`")


def a_boolean(name: str, text: str) -> bool:
    """Parse "true" or "false", in upper or lower case."""
    return choice("true", "false")(name, text) == "true"


def a_text(name: str, text: str) -> str:
    """Parse any text that is not empty; spaces at the ends are cut off."""
    if not text.strip():
        raise ConfigurationError(f"option {name} is empty; set it, or leave it out")
    return text.strip()


def a_column(name: str, text: str) -> str:
    """Parse the name of a column, which may be quoted."""
    stripped = a_text(name, text)
    return _unquoted(stripped) if _QUOTED.fullmatch(stripped) else stripped


def column_list(name: str, text: str) -> tuple[str, ...]:
    """Parse names of columns; no name may come twice."""
    if not _COLUMNS.fullmatch(text):
        raise _bad(name, text, "names of columns, separated by commas; quote a comma as in `a,b`")
    names = tuple(
        _unquoted(part) if _QUOTED.fullmatch(part) else part
        for part in (match[0].strip() for match in _COLUMN.finditer(text))
    )
    twice = next((column for column in names if names.count(column) > 1), None)
    if twice:
        raise ConfigurationError(f"option {name} names {twice!r} twice; name it once")
    return names


def size(least: int) -> Callable[[str, str], int]:
    """The parser of a number of bytes, at least `least`."""

    def parse(name: str, text: str) -> int:
        match = _SIZE.fullmatch(text.strip())
        value = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else -1
        if not least <= value <= _MOST:
            allowed = "bytes, as a whole number that may end in k, m, g or t"
            raise _bad(name, text, f"{allowed}, from {least}")
        return value

    return parse


def a_duration(name: str, text: str) -> float:
    """Parse a number of seconds, at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise _bad(name, text, "numbers of seconds from 0, such as 0.5")
    return value


def a_time(name: str, text: str) -> int:
    """Parse a time to milliseconds since 1970. Digits alone are milliseconds, never ISO 8601."""
    try:
        if re.fullmatch(r"-?[0-9]+", text.strip()):
            return int(text)
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise _bad(
            name, text, 'milliseconds since 1970 and ISO 8601 as "2026-01-31 12:00:00" (UTC)'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MILLISECOND


def a_json_object(name: str, text: str) -> dict[str, Any]:
    """Parse a JSON object. Error messages do not show the text, which may hold credentials."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError(
            f'option {name} is not a JSON object; write it like {{"anon": true}}'
        )
    return value


def a_table_url(name: str, text: str) -> str:
    """Parse the URL of a store, or a local path, which is made absolute."""
    a_text(name, text)
    # A path may begin or end in spaces.
    return shared_url(f"option {name}", text.strip() if "://" in text else text)
