"""Replaces methods of PySpark's classes, each once in a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replace_once(owner: Any, name: str, mark: str, wrapped: Callable[[Any], Any]) -> None:
    """Replace a method by `wrapped(method)`, and set the attribute `mark` of the new method. Do
    nothing if the method already has this attribute.

    If other code wraps the new method with functools.wraps, the wrapper has the attribute, too.
    """
    method = getattr(owner, name)
    if not hasattr(method, mark):
        replacement = wrapped(method)
        setattr(replacement, mark, True)
        setattr(owner, name, replacement)
