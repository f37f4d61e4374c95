"""Replaces methods of PySpark's classes, each once in a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replace_once(owner: Any, name: str, mark: str, wrapped: Callable[[Any], Any]) -> None:
    """Replace a method by `wrapped(method)`, which has the attribute `mark`; do nothing if the
    method has the mark. functools.wraps gives the mark to later wrappers, too."""
    method = getattr(owner, name)
    if not hasattr(method, mark):
        replacement = wrapped(method)
        setattr(replacement, mark, True)
        setattr(owner, name, replacement)
