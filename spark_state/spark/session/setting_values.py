"""Parses the texts of settings below `spark.cowstate.`.

Each parser takes the key without its prefix, and the text, and returns the value. A wrong text
raises a ConfigurationError that names the key, the text and the allowed values. `allowed` describes
the allowed values on the page of settings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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


class Parser(Protocol):
    """A parser of a setting's text; see the module."""

    @property
    def allowed(self) -> str:
        """The allowed values, in Markdown."""

    def __call__(self, key: str, text: str, /) -> Any:
        """The value of a text. Raises ConfigurationError."""


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """The URL of an operator's store, or of a query's directory; and the epoch, None for the
    newest."""

    url: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`."""

    low: int
    high: int = MOST

    @property
    def allowed(self) -> str:
        """See Parser."""
        return f"from {self.low}" if self.high == MOST else f"{self.low} to {self.high}"

    def __call__(self, key: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = self.low - 1
        if not self.low <= value <= self.high:
            raise ConfigurationError(
                f"{PREFIX}{key} is {text!r}; allowed are whole numbers from {self.low} to "
                f"{self.high}"
            )
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """A word of `words`."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """See Parser."""
        return ", ".join(f"`{word}`" for word in self.words)

    def __call__(self, key: str, text: str) -> str:
        if text not in self.words:
            raise ConfigurationError(
                f"{PREFIX}{key} is {text!r}; allowed are {', '.join(self.words)}"
            )
        return text


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    allowed: str = "`true`, `false`"

    def __call__(self, key: str, text: str) -> bool:
        return Choice(("false", "true"))(key, text) == "true"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A URL of fsspec, or a path, which becomes absolute."""

    allowed: str = "a path or any fsspec URL"

    def __call__(self, key: str, text: str) -> str:
        url = text.strip()
        if not url:
            raise ConfigurationError(f"{PREFIX}{key} is empty; set it to a path or an fsspec URL")
        if url.startswith("memory:"):
            raise ConfigurationError(
                f"{PREFIX}{key} is {url!r}, but each process has a memory of its own; set it to a "
                "path or the URL of a store that all executors reach"
            )
        try:
            return absolute_url(url)
        except StoreAccessError as error:
            raise ConfigurationError(f"{PREFIX}{key} is {url!r}: {error.problem}") from error


@dataclass(frozen=True, slots=True)
class OrNone:
    """A value of `parse`; None for an empty text."""

    parse: Parser

    @property
    def allowed(self) -> str:
        """See Parser."""
        return self.parse.allowed

    def __call__(self, key: str, text: str) -> Any:
        return self.parse(key, text.strip()) if text.strip() else None


@dataclass(frozen=True, slots=True)
class EpochOfStore:
    """A RestoreFrom."""

    allowed: str = "URL of a query's directory or of an operator's store, with `@epoch` or without"

    def __call__(self, key: str, text: str) -> RestoreFrom:
        url, epoch = _WITH_EPOCH.fullmatch(text).groups()  # type: ignore[union-attr]
        return RestoreFrom(StoreUrl()(key, url), None if epoch is None else int(epoch))


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """An absolute path."""

    allowed: str = "an absolute path"

    def __call__(self, key: str, text: str) -> str:
        if not Path(text).is_absolute():
            raise ConfigurationError(
                f"{PREFIX}{key} is {text!r}; set it to the absolute path of a directory that is "
                "there on all executors"
            )
        return text


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """A number of files, or ALL_FILES."""

    allowed: str = f"{ALL_FILES}, or from {_FEWEST_FILES}"

    def __call__(self, key: str, text: str) -> int:
        if text == str(ALL_FILES):
            return ALL_FILES
        if not text.isdecimal() or not _FEWEST_FILES <= int(text) <= MOST:
            raise ConfigurationError(
                f"{PREFIX}{key} is {text!r}; allowed are {ALL_FILES} for all files, and whole "
                f"numbers from {_FEWEST_FILES} to {MOST}"
            )
        return int(text)
