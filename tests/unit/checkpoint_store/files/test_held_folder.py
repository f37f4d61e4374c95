"""Processes that hold a folder's lock share the folder, and the last holder removes the folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoint_store.files import held_folder
from checkpoint_store.files.held_folder import LOCK, held, remove_if_free


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def test_several_hold_a_folder_and_it_goes_when_the_last_one_has_left(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    with held(lambda: made(folder)):
        with held(lambda: made(folder)), pytest.raises(BlockingIOError):
            remove_if_free(folder)
        with pytest.raises(BlockingIOError):
            remove_if_free(folder)
        (folder / "file").touch()
    remove_if_free(folder)
    assert not folder.exists()


@pytest.mark.parametrize("removals", [1, 5])
def test_a_folder_that_is_removed_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    folder, left = tmp_path / "work", [*range(removals)]
    lock = held_folder.fcntl.flock

    def removed_before(descriptor: int, operation: int) -> None:
        if left:
            left.pop()
            shutil.rmtree(folder)
        lock(descriptor, operation)

    monkeypatch.setattr(held_folder.fcntl, "flock", removed_before)
    with held(lambda: made(folder)):
        assert (folder / LOCK).exists()
        with pytest.raises(BlockingIOError):
            remove_if_free(folder)


def test_who_waited_for_a_lock_that_is_gone_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, a second process removes the folder and a third makes it
    again."""
    folder = made(tmp_path / "work")
    lock = held_folder.fcntl.flock

    def made_anew_before(descriptor: int, operation: int) -> None:
        shutil.rmtree(folder)
        made(folder)
        (folder / LOCK).touch()
        (folder / "file").touch()
        lock(descriptor, operation)

    monkeypatch.setattr(held_folder.fcntl, "flock", made_anew_before)
    remove_if_free(folder)
    assert (folder / "file").exists()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), held(lambda: made(tmp_path / "none" / "work")):
        pass
