"""Files outlast a power failure on a system whose fsync does not reach the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpoint_store.objects import local_object_store
from checkpoint_store.objects.local_object_store import sync_directory, write_synced

FULL_SYNC = 51


@pytest.mark.parametrize("is_known", [True, False])
def test_where_there_is_a_full_sync_it_is_asked_for_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """macOS has F_FULLFSYNC, which some file systems refuse."""
    calls: list[str] = []

    def full_sync(_descriptor: int, command: int) -> int:
        assert command == FULL_SYNC
        calls.append("full")
        if not is_known:
            raise OSError("not supported")
        return 0

    monkeypatch.setattr(local_object_store.fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(local_object_store.fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: calls.append("fsync"))
    write_synced(tmp_path / "file", b"x")
    sync_directory(tmp_path)
    assert calls == ["full", "full"] if is_known else ["full", "fsync"] * 2
