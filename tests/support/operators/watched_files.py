"""A patch that watches the writing of state files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpoint_store.operators.epoch_files import AttemptFiles


def nothing(files: AttemptFiles) -> None:
    """Do nothing."""


def watch_files(
    monkeypatch: pytest.MonkeyPatch,
    kind: str | None = None,
    before: Callable[[AttemptFiles], object] = nothing,
    after: Callable[[AttemptFiles], object] = nothing,
) -> None:
    """Call `before` and `after` whenever an attempt writes a state file. `before` may raise, or
    wait. `kind`: of the watched files, None for all."""
    original = AttemptFiles.write

    def write(files: AttemptFiles, of_file: Any, rows: Any, key_groups: Any) -> Any:
        is_watched = kind in (None, of_file)
        if is_watched:
            before(files)
        handle = original(files, of_file, rows, key_groups)
        if is_watched:
            after(files)
        return handle

    monkeypatch.setattr(AttemptFiles, "write", write)
