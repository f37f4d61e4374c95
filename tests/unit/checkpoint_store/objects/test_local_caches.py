"""A local store finds an object despite a network file system's stale cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from checkpoint_store.errors import ObjectMissingError
from checkpoint_store.objects.local_object_store import LocalObjectStore


def test_a_missing_file_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's cache says that a file is missing until the directories above the file are
    opened."""
    store = LocalObjectStore(tmp_path / "store")
    store.put("epochs/1/a", b"x")
    opened: list[str] = []
    open_, read, scan = os.open, Path.read_bytes, os.scandir
    above = [str(tmp_path / "store" / part) for part in ("", "epochs", "epochs/1")]

    def noted(path: Any, flags: int, *rest: Any) -> int:
        opened.append(str(path))
        return open_(path, flags, *rest)

    def check_cache(path: Path, names: list[str]) -> None:
        if opened != names:
            raise FileNotFoundError(path)

    def read_if_known(path: Path) -> bytes:
        check_cache(path, above)
        return read(path)

    def scan_if_known(path: Path) -> Any:
        check_cache(path, above[:2])
        return scan(path)

    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(Path, "read_bytes", read_if_known)
    assert store.get("epochs/1/a") == b"x"
    opened.clear()
    monkeypatch.setattr(os, "scandir", scan_if_known)
    assert [info.name for info in store.list("epochs/1")] == ["epochs/1/a"]
    with pytest.raises(ObjectMissingError):
        store.get("epochs/2/a")
