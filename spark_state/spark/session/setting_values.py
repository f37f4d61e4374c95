"""Parses the texts of settings below `spark.cowstate.`.

A parser takes the key without its prefix, and the text, and returns the value. A wrong text raises
a ConfigurationError that names the key, the text and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_store.errors import StoreAccessError
from checkpoint_store.objects.store_url import absolute_url
from spark_state.errors import ConfigurationError
from spark_state.rocksdb.database_settings import ALL_FILES

PREFIX = "spark.cowstate."
MOST = 2**31 - 1
LEAST_MEMORY_MB = 64
MAX_PARALLELISM_LIMIT = 32_768
_FEWEST_FILES = 64
_WITH_EPOCH = re.compile(r"(.+?)(?:@(\d+))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SettingValues:
    """The values that a setting allows. `allowed`: describes the values in Markdown; `parse`: the
    parser, see the module."""

    allowed: str
    parse: Callable[[str, str], Any]


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """The URL of an operator's store, or of a query's directory; and the epoch, None for the
    newest."""

    url: str
    epoch: int | None


def whole_number(what: str, text: str, low: int, high: int) -> int:
    """Parse a whole number from `low` to `high`. `what`: the setting, for the error."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise ConfigurationError(
            f"{what} is {text!r}; allowed are whole numbers from {low} to {high}"
        )
    return value


def shared_url(what: str, url: str) -> str:
    """The absolute URL of a store that all processes reach. `what`: the setting, for the error."""
    if url.startswith("memory:"):
        raise ConfigurationError(
            f"{what} is {url!r}, but each process has a memory of its own; use a path or the URL "
            "of a store that all executors reach"
        )
    try:
        return absolute_url(url)
    except StoreAccessError as error:
        raise ConfigurationError(f"{what} is {url!r}: {error.problem}") from error


def integer(low: int, high: int = MOST) -> SettingValues:
    """Whole numbers from `low` to `high`."""
    allowed = f"from {low}" if high == MOST else f"{low} to {high}"
    return SettingValues(allowed, lambda key, text: whole_number(f"{PREFIX}{key}", text, low, high))


def choice(*words: str) -> SettingValues:
    """One of `words`."""

    def parse(key: str, text: str) -> str:
        if text not in words:
            raise ConfigurationError(f"{PREFIX}{key} is {text!r}; allowed are {', '.join(words)}")
        return text

    return SettingValues(", ".join(f"`{word}`" for word in words), parse)


def or_none(values: SettingValues) -> SettingValues:
    """These values, and None for an empty text."""

    def parse(key: str, text: str) -> Any:
        return values.parse(key, text.strip()) if text.strip() else None

    return SettingValues(values.allowed, parse)


def _truth(key: str, text: str) -> bool:
    return bool(choice("false", "true").parse(key, text) == "true")


def _store_url(key: str, text: str) -> str:
    if not text.strip():
        raise ConfigurationError(f"{PREFIX}{key} is empty; set it to a path or an fsspec URL")
    return shared_url(f"{PREFIX}{key}", text.strip())


def _epoch_of_store(key: str, text: str) -> RestoreFrom:
    url, epoch = _WITH_EPOCH.fullmatch(text).groups()  # type: ignore[union-attr]
    return RestoreFrom(_store_url(key, url), None if epoch is None else int(epoch))


def _local_directory(key: str, text: str) -> str:
    if not Path(text).is_absolute():
        raise ConfigurationError(
            f"{PREFIX}{key} is {text!r}; set it to the absolute path of a directory that is there "
            "on all executors"
        )
    return text


def _open_files(key: str, text: str) -> int:
    if text == str(ALL_FILES):
        return ALL_FILES
    if not text.isdecimal() or not _FEWEST_FILES <= int(text) <= MOST:
        raise ConfigurationError(
            f"{PREFIX}{key} is {text!r}; allowed are {ALL_FILES} for all files, and whole numbers "
            f"from {_FEWEST_FILES} to {MOST}"
        )
    return int(text)


TRUTH = SettingValues("`true`, `false`", _truth)
STORE_URL = SettingValues("a path or any fsspec URL", _store_url)
EPOCH_OF_STORE = SettingValues(
    "URL of a query's directory or of an operator's store, with `@epoch` or without",
    _epoch_of_store,
)
LOCAL_DIRECTORY = SettingValues("an absolute path", _local_directory)
OPEN_FILES = SettingValues(f"{ALL_FILES}, or from {_FEWEST_FILES}", _open_files)
