"""Finder of secrets in storage options, by the names of the options; removes secrets from texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# The jar has the same rule, in StoreSettings.
_IN_NAMES = (
    *("secret", "password", "passwd", "passphrase", "token", "credential", "signature"),
    *("connection_string", "connectionstring", "authorization"),
)
_WORDS = {"auth", "pass", "pwd", "sas"}
_PASSWORD_IN_URL = re.compile(r"://[^/\s]*:[^/\s]*@")


def secret_options(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of options that look like secrets, or whose values have a password, at any
    depth."""
    return tuple(dict.fromkeys(name for name, _ in _secrets("", options)))


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """Return a text in which the values of secret options are replaced by "…"."""
    for _, value in _secrets("", options):
        if value:
            text = text.replace(value, "…")
    return text


def _secrets(name: str, value: Any, is_secret: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the secrets in `value`, at any depth, each with the name of its option. `is_secret`:
    all of `value` is secret."""
    if isinstance(value, Mapping):
        for inner, below in value.items():
            yield from _secrets(str(inner), below, is_secret or _is_secret(str(inner).lower()))
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _secrets(name, element, is_secret)
    elif value is not None and (is_secret or _PASSWORD_IN_URL.search(str(value))):
        yield name, str(value)


def _is_secret(name: str) -> bool:
    of_account = name.endswith(("key_id", "keyid")) and "kms" not in name
    words = set(re.split("[^a-z0-9]+", name))
    return (
        any(part in name for part in _IN_NAMES)
        or name.endswith("key")
        or of_account
        or bool(words & _WORDS)
    )
