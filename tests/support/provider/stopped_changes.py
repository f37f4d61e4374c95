"""A process that ends between two changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class StoppedError(BaseException):
    """Marks the end of the process: nothing is written afterwards."""


def stop_after(patch: pytest.MonkeyPatch, writes: int, changing: dict[type, list[str]]) -> None:
    """Let only `writes` changes happen, then raise StoppedError. `changing`: the names of the
    methods that change something, by class."""
    left = writes

    def limited(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoppedError
            return change(*arguments)

        return run

    for owner, names in changing.items():
        for name in names:
            patch.setattr(owner, name, limited(getattr(owner, name)))
